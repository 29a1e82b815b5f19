"""Labels by rules: lists of verbs and phrases, each with the motion and direction it stands for.

The lists know plain English for rigid motion and common words for everything else. Negated words do not count ("does not
rotate", "without turning"). A clause about the camera is read with the camera's list, any other with the list for objects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from phys_pipeline.evaluation.prompts.label import RIGID, Label

NAME = "rules"


class Cue(NamedTuple):
    """Words that stand for a motion."""

    pattern: re.Pattern[str]
    motion: str
    direction: str | None


class _Found(NamedTuple):
    motion: str
    direction: str | None
    words: str
    by_camera: bool


def _cue(pattern: str, motion: str, direction: str | None = None) -> Cue:
    return Cue(re.compile(rf"\b(?:{pattern})\b"), motion, direction)


_GO = (
    r"(?:mov|driv|slid|glid|drift|travel|rac|speed|sped|shoot|rush|sail|float|fly|flies|flew|creep|crept|cross|pass|pull|push|"
    r"roll|go|goes|going|head|zip|dash|scroll|swing|slip|coast|walk|run|swim)\w*"
)
_AFTER = r"(?:\W+(?!from\b)\w+){0,4}?\W+"  # up to four words between a verb and its direction
_COUNTER = r"(?:counter|anti)-?\s?clockwise"
_CLOCKWISE = r"(?<!counter)(?<!counter-)(?<!counter )(?<!anti)(?<!anti-)(?<!anti )clockwise"
_VIEWER = r"(?:the )?(?:viewer|lens|us|camera|observer)"

_OBJECT = (
    _cue(rf"{_GO}{_AFTER}left|leftwards?|from (?:the )?right\b.{{0,20}}\bto (?:the )?left", "translation", "left"),
    _cue(rf"{_GO}{_AFTER}right|rightwards?|from (?:the )?left\b.{{0,20}}\bto (?:the )?right", "translation", "right"),
    _cue(
        rf"{_GO}{_AFTER}up(?! (?:an?|the)\b)|upwards?|ris(?:es|ing)|rose|ascend\w*|climb\w*|lift(?:s|ed|ing)|hoist\w*|soar\w*",
        "translation",
        "up",
    ),
    _cue(
        rf"{_GO}{_AFTER}down(?! (?:an?|the)\b)|downwards?|downhill|fall(?:s|ing)?|fell|drop(?:s|ped|ping)?|descend\w*|sink\w*|"
        r"sank|lower(?:s|ed|ing)",
        "translation",
        "down",
    ),
    _cue(_COUNTER, "rotation", "counterclockwise"),
    _cue(_CLOCKWISE, "rotation", "clockwise"),
    _cue(
        r"rotat\w*|spin(?:s|ning)?|spun|revolv\w*|whirl(?:s|ing|ed)?|swivel\w*|pivot\w*|(?:turn|sweep)(?:s|ing|ed)? (?:a)?round",
        "rotation",
    ),
    _cue(
        r"grow(?:s|ing)?|grew|expand\w*|swell\w*|inflat\w*|enlarg\w*|bigger|larger|approach\w*|closer|nearer|"
        rf"towards? {_VIEWER}",
        "scaling",
        "zoom_in",
    ),
    _cue(
        rf"shrink\w*|shrank|contract(?:s|ing|ed)|deflat\w*|reced\w*|smaller|becom\w+ tiny|away from {_VIEWER}|into the distance",
        "scaling",
        "zoom_out",
    ),
)
_ROLLING = _cue(r"roll(?:s|ing|ed)?", "rotation")  # of an object: it turns and moves
_MOVING = _cue(_GO, "translation")  # a verb without a direction counts only where nothing else does
_CAMERA_MOVES = r"(?:mov|track|truck|slid|glid|travel|fly|flies)\w*"
_CAMERA = (
    _cue(rf"(?:pan(?:s|ned|ning)?|{_CAMERA_MOVES}){_AFTER}(?:left|leftwards?)", "translation", "pan_left"),
    _cue(rf"(?:pan(?:s|ned|ning)?|{_CAMERA_MOVES}){_AFTER}(?:right|rightwards?)", "translation", "pan_right"),
    _cue(rf"(?:tilt(?:s|ed|ing)?|crane|{_CAMERA_MOVES}){_AFTER}(?:up|upwards?)", "translation", "tilt_up"),
    _cue(rf"(?:tilt(?:s|ed|ing)?|crane|{_CAMERA_MOVES}){_AFTER}(?:down|downwards?)", "translation", "tilt_down"),
    _cue(_COUNTER, "rotation", "roll_counterclockwise"),
    _cue(_CLOCKWISE, "rotation", "roll_clockwise"),
    _cue(r"roll(?:s|ing|ed)?|rotat\w*|spin(?:s|ning)?", "rotation"),
    _cue(rf"zoom\w*{_AFTER}in(?:to|wards?)?", "scaling", "camera_zoom_in"),
    _cue(rf"zoom\w*{_AFTER}(?:out|back|away)", "scaling", "camera_zoom_out"),
    _cue(
        rf"(?:doll|push)\w*{_AFTER}in(?:to|wards?)?|{_CAMERA_MOVES}{_AFTER}(?:closer|nearer|forwards?|in)", "scaling", "dolly_in"
    ),
    _cue(
        rf"(?:doll|pull)\w*{_AFTER}(?:out|back|away)|{_CAMERA_MOVES}{_AFTER}(?:away|backwards?|back|out)", "scaling", "dolly_out"
    ),
)
_COMPLEX = _cue(
    r"(?:walk|danc|leap|jump|gallop|crawl|wrestl|fight|box(?=ers?)|punch|stretch|yawn|twirl|swim|juggl|toss|throw|hug|kiss|clap|"
    r"trot|pour|splash|drip|melt|flow(?!er)|stream|ripple|swirl|curl|billow|flap|flutter|wobbl|bend|fold|knead|crumpl|twist|deform|"
    r"squash|flicker|burn|explod|explosion|firework|shatter|break|collaps|crumbl|burst|scatter|collid|crash|bounc|swarm|flock|"
    r"crowd|school of|smok|steam|spark|boil|freez(?=e|ing)|bloom|opens? its|morph|transform|shak(?=e|ing)|trembl|gust)\w*|"
    r"runs?(?! out)|running|waves?|swings? (?:a)?round|changes? its shape",
    "other",
)
_STATIC = _cue(
    r"motionless|unmoving|immobile|static (?:shot|scene|picture)|still (?:picture|life|camera)|"
    r"nothing (?:moves|changes|happens)|no (?:movement|motion)(?: at all)?|"
    r"(?:(?:do|does|is|are) not|(?:does|do|is|are)n't) mov\w+(?! (?:to the )?(?:left|right|up|down))|locked-off|"
    r"(?:stands?|stays?|staying|is|are|remains?|completely) still(?! \w+ing)",
    "other",
    "static",
)
_CAMERA_STILL = re.compile(
    r"\bcamera (?:is |stays |remains )?(?:static|still|fixed)\b|\b(?:static|still|fixed) camera\b|"
    r"\bcamera (?:does not|doesn't) move\b"
)
_CAMERA_CLAUSE = re.compile(
    r"\b(?:camera|(?:view|shot) (?:pans|tilts|rolls|zooms)|"
    rf"pan(?:s|ning)?\b{_AFTER}(?:left|right)|tilt(?:s|ing)?\b{_AFTER}(?:up|down)|"
    r"(?:zoom|doll|push|pull)\w*(?: \w+)? (?:in|out|back))\b"
)
_STILL_ABOUT_IT = re.compile(
    r"\s*(?:(?:it|then|also) )*(?:mov|roll|rotat|spin|zoom|pan|tilt|doll|push|pull)\w*\b"
)  # no new subject
_TOWARDS_CAMERA = re.compile(r"\b(?:towards?|away from|at|near) (?:the )?camera\b")
_CLAUSES = re.compile(r"[.;:,]|\bwhile\b|\band\b|\bbut\b|\bin which\b")
_NEGATED = re.compile(r"\b(?:no|not|never|without|nothing|instead of|rather than|cannot|\w+n't)\b(?! only).*")
_SLOW = re.compile(r"\b(?:slow|slowly|slow-moving|gently|gradually|creeps?)\b")
_LARGE = re.compile(r"\b(?:fast|quick|quickly|rapid|rapidly|swift|swiftly|speeds?|races?|rushes|shoots|dashes|hurtles)\b")


def label_by_rules(text: str) -> Label:
    """The label of a prompt in English. ``confidence``: 0.9 for one motion with its direction, down to 0.3 if no word fits."""
    plain = _plain(text)
    found, complex_words, static_words, moving_words = _read(plain)
    amplitude = _amplitude(plain)
    if complex_words:
        return Label("other", None, amplitude, NAME, 0.8, tuple(dict.fromkeys(complex_words)))
    motions = [motion for motion in RIGID if any(cue.motion == motion for cue in found)]
    words = tuple(dict.fromkeys(cue.words for cue in found))
    if len(motions) > 1 or len({cue.by_camera for cue in found}) > 1:
        return Label("mixed", None, amplitude, NAME, 0.7, words)
    if motions:
        directions = {cue.direction for cue in found if cue.direction is not None}
        if len(directions) == 1:
            return Label(motions[0], directions.pop(), amplitude, NAME, 0.9, words)
        return Label(motions[0], None, amplitude, NAME, 0.6 if not directions else 0.4, words)
    if moving_words:
        return Label("translation", None, amplitude, NAME, 0.5, tuple(dict.fromkeys(moving_words)))
    if static_words:
        return Label("other", "static", None, NAME, 0.8, tuple(dict.fromkeys(static_words)))
    return Label("other", None, amplitude, NAME, 0.3)


def direction_by_rules(text: str) -> str | None:
    """The direction that a video of a prompt in English can be checked for; None where it names none, or several.

    Unlike a label's, it may stand beside other motion: "waves break on a coast, camera pans left" has a direction, though its
    motion is "other". What the camera does counts before what an object does, for the whole picture shows it. Besides the
    directions of labels there is "camera_static", for a camera that is still while something may move.
    """
    plain = _plain(text)
    found, complex_words, static_words, moving_words = _read(plain)
    for by_camera in (True, False):
        directions = {cue.direction for cue in found if cue.by_camera is by_camera and cue.direction is not None}
        if directions:
            return directions.pop() if len(directions) == 1 else None
    if _CAMERA_STILL.search(plain):
        return "camera_static"
    return "static" if static_words and not (found or complex_words or moving_words) else None


def _plain(text: str) -> str:
    return text.lower().replace("’", "'")


def _read(plain: str) -> tuple[list[_Found], list[str], list[str], list[str]]:
    """What a prompt in lower case says clause by clause: cues of rigid motion, words for other motion, for none, for some."""
    found: list[_Found] = []
    complex_words: list[str] = []
    static_words: list[str] = []
    moving_words: list[str] = []
    by_camera = False
    for clause in _CLAUSES.split(plain):
        static_words += _words(_STATIC, clause)
        kept = _NEGATED.sub("", _STATIC.pattern.sub("", clause))
        by_camera = bool(_CAMERA_CLAUSE.search(_TOWARDS_CAMERA.sub("", kept)) or (by_camera and _STILL_ABOUT_IT.match(kept)))
        if by_camera:
            found += _matches(_CAMERA, kept, by_camera=True)
            continue
        complex_words += _words(_COMPLEX, kept)
        in_clause = _matches(_OBJECT, kept, by_camera=False)
        if _words(_ROLLING, kept):
            in_clause += [_Found(motion, None, "rolls", False) for motion in ("rotation", "translation")]
        found += in_clause
        moving_words += [] if in_clause else _words(_MOVING, kept)
    return found, complex_words, static_words, moving_words


def _words(cue: Cue, clause: str) -> list[str]:
    return [match.group().strip() for match in cue.pattern.finditer(clause)]


def _matches(cues: tuple[Cue, ...], clause: str, by_camera: bool) -> list[_Found]:
    return [_Found(cue.motion, cue.direction, words, by_camera) for cue in cues for words in _words(cue, clause)]


def _amplitude(text: str) -> str | None:
    slow, large = bool(_SLOW.search(text)), bool(_LARGE.search(text))
    return None if slow == large else "slow" if slow else "large"
