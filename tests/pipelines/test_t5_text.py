import logging
from types import SimpleNamespace

import pytest
import torch
from tiny_open_sora import TOKENIZER, tiny_text_encoder

from phys_pipeline.errors import ConfigError
from phys_pipeline.pipelines.t5_text import clean_caption, encode_t5

SENTENCE = "a red ball falls, then it bounces 2 times. aesthetic score: 6.5."


@pytest.fixture(scope="module")
def pipeline():
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    return SimpleNamespace(tokenizer=tokenizer, text_encoder=tiny_text_encoder(), _execution_device=torch.device("cpu"))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (SENTENCE, SENTENCE),
        ("  A Red BALL\nfalls ", "a red ball falls"),
        ("see https://example.org/a?b=1 a cat, www.cats.net/x or cats.com", "see a cat, or"),
        ("a <b>bold</b> cat by @someone [4k] (hd)", "a bold cat by 4k hd"),
        ("a cat IMG_2003.jpg #1234 #art 12345678", "a cat art"),
        ("“a cat”—‘big’", "a cat\"-'big"),
        ("a+red%20ball", "a red ball"),
        ("一只猫 a cat", "a cat"),
        ("красный мяч", "красный мяч"),
        ("", ""),
    ],
)
def test_one_pass(text, cleaned):
    assert clean_caption(text) == cleaned


def test_a_second_pass_finds_what_the_first_uncovers(pipeline):
    text = "a &amp;lt;i&amp;gt;red&amp;lt;/i&amp;gt; ball"
    assert clean_caption(text) != clean_caption(clean_caption(text)) == "a red ball"
    assert torch.equal(encode_t5(pipeline, text, 16)[0], encode_t5(pipeline, "a red ball", 16)[0])


def test_features_depend_on_the_mask_and_padding_is_on_the_right(pipeline):
    embeds, mask = encode_t5(pipeline, [SENTENCE, "a ball"], 24)
    assert embeds.shape == (2, 24, 48) and mask.sum(1).tolist() == [20, 4]
    assert mask[1, :4].all() and not mask[1, 4:].any()
    alone, _ = encode_t5(pipeline, "a ball", 4)
    torch.testing.assert_close(embeds[1, :4], alone[0], atol=1e-5, rtol=1e-4)  # so T5 was told the mask


def test_an_empty_prompt_is_the_token_that_ends_a_text(pipeline):
    for text in ("", "  ", "一只猫", "https://example.com"):
        embeds, mask = encode_t5(pipeline, text, 8)
        assert mask.sum() == 1 and torch.isfinite(embeds).all()


def test_more_than_three_hundred_tokens_are_cut_with_a_warning(pipeline, caplog):
    with caplog.at_level(logging.WARNING):
        embeds, mask = encode_t5(pipeline, "a ball rolls " * 200, 300)
    assert mask.shape == (1, 300) and mask.all() and "tokens and the model reads 300: its end is cut off" in caplog.text
    shorter, _ = encode_t5(pipeline, "a ball rolls " * 90, 300)
    assert embeds.shape == shorter.shape
    caplog.clear()
    encode_t5(pipeline, "a ball", 300)
    assert not caplog.records


def test_scripts_that_the_vocabulary_lacks_become_unknown_tokens(pipeline):
    ids = pipeline.tokenizer("красный мяч катится").input_ids
    assert pipeline.tokenizer.unk_token_id in ids
    assert torch.isfinite(encode_t5(pipeline, "красный мяч катится", 16)[0]).all()
    assert pipeline.tokenizer.unk_token_id not in pipeline.tokenizer("Ein großer Ball fällt à côté").input_ids


def test_no_prompt_is_refused(pipeline):
    with pytest.raises(ConfigError, match="no prompt given"):
        encode_t5(pipeline, [], 8)
