// A card for every seed; choosing one tells Python which.
const grid = element.querySelector(".grid");
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;

function clip(file) {
  const video = document.createElement("video");
  Object.assign(video, { src: file.url || file.path, muted: true, loop: true, playsInline: true, autoplay: !calm });
  video.setAttribute("aria-hidden", "true");
  video.tabIndex = -1;
  return video;
}

function load() {
  const cards = (props.value && props.value.cards) || [];
  grid.replaceChildren(...cards.map((card) => {
    const item = document.createElement("div"), button = document.createElement("button");
    item.setAttribute("role", "listitem");
    button.type = "button";
    button.setAttribute("aria-pressed", String(card.chosen));
    const clips = Object.assign(document.createElement("span"), { className: "clips" });
    clips.append(...card.files.filter(Boolean).map(clip));
    button.append(clips, Object.assign(document.createElement("span"), { className: "text", textContent: card.text }));
    button.onclick = () => trigger("chosen", { seed: card.seed });
    item.append(button);
    return item;
  }));
}
watch("value", load);
load();
