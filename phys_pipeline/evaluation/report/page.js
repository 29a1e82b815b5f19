"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const make = (tag, text, properties = {}) => Object.assign(document.createElement(tag), { textContent: text }, properties);
const clipName = (clip) => (clip.seed === null ? clip.id : clip.id + " #" + clip.seed);
let chosen = 0;

// Clips side by side: the first video is the clock, the others follow it.
const shown = data.clips.map((_, index) => index).filter((index) => Object.values(data.videos).some((urls) => urls[index]));
let playing = true;
const players = () => [...document.querySelectorAll("#videos video")];

function show(index) {
  chosen = index;
  for (const row of document.querySelectorAll("#rows tbody tr")) row.classList.toggle("chosen", Number(row.dataset.clip) === index);
  if (!byId("viewer") || !shown.includes(index)) return;
  byId("clip").value = String(index);
  byId("prompt").textContent = data.clips[index].prompt || clipName(data.clips[index]);
  byId("videos").replaceChildren();
  for (const column of data.columns) {
    const url = (data.videos[column.key] || [])[index];
    if (!url) continue;
    const picture = /^data:image|\.(gif|webp|png)$/i.test(url);
    const player = make(picture ? "img" : "video", "", picture ? { alt: column.label } : { muted: true, playsInline: true, preload: "auto" });
    player.src = url;
    const box = make("div", "");
    box.append(player, make("p", column.label));
    byId("videos").append(box);
  }
  for (const player of players()) player.playbackRate = Number(byId("speed").value);
  setPlaying(playing);
}

function setPlaying(on) {
  playing = on;
  byId("play").textContent = on ? "Pause" : "Play";
  for (const player of players()) {
    if (on) player.play().catch(() => {});
    else player.pause();
  }
}

function follow() {
  const [clock, ...others] = players();
  if (clock && clock.duration) {
    if (playing && clock.ended) {
      for (const player of players()) player.currentTime = 0;
      setPlaying(true);
    }
    for (const player of others) {
      const time = Math.min(clock.currentTime, player.duration || 0);
      if (Math.abs(player.currentTime - time) > 0.06) player.currentTime = time;
    }
    byId("time").value = String(Math.round((1000 * clock.currentTime) / clock.duration));
  }
  requestAnimationFrame(follow);
}

function step(by) {
  show(shown[(Math.max(0, shown.indexOf(chosen)) + by + shown.length) % shown.length]);
}

if (byId("viewer")) {
  for (const index of shown) byId("clip").append(make("option", clipName(data.clips[index]), { value: String(index) }));
  byId("clip").onchange = (event) => show(Number(event.target.value));
  byId("previous").onclick = () => step(-1);
  byId("next").onclick = () => step(1);
  byId("play").onclick = () => setPlaying(!playing);
  byId("speed").onchange = (event) => players().forEach((player) => (player.playbackRate = Number(event.target.value)));
  byId("time").oninput = (event) => {
    setPlaying(false);
    for (const player of players()) if (player.duration) player.currentTime = (player.duration * event.target.value) / 1000;
  };
  document.addEventListener("keydown", (event) => {
    if (event.target !== document.body) return;
    if (event.key === " ") setPlaying(!playing);
    else if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
    else return;
    event.preventDefault();
  });
  show(shown[0]);
  requestAnimationFrame(follow);
}

// The table of clips: prompt, seed, one value for each column.
let order = { place: 0, down: false };

function clipRows() {
  const metric = byId("metric").value;
  const columns = data.columns.filter((column) => (data.values[column.key] || {})[metric]);
  return [columns, data.clips.map((clip, index) => [clip.id, clip.seed, clip.prompt, ...columns.map((c) => data.values[c.key][metric][index]), index])];
}

function compare(a, b) {
  const [x, y] = [a[order.place], b[order.place]];
  if (x === null || y === null) return (x === null) - (y === null); // what is missing stays at the end
  const sign = order.down ? -1 : 1;
  return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true }));
}

function fill() {
  const [columns, rows] = clipRows();
  const decimals = data.metrics.find((metric) => metric.key === byId("metric").value).decimals;
  const head = make("tr", "");
  ["clip", "seed", "prompt", ...columns.map((column) => column.label)].forEach((text, place) => {
    const arrow = place === order.place ? (order.down ? " ▾" : " ▴") : "";
    const heading = make("th", text + arrow, { scope: "col", tabIndex: 0 });
    heading.onclick = () => {
      order = { place, down: place === order.place && !order.down };
      fill();
    };
    heading.onkeydown = (event) => event.key === "Enter" && heading.onclick();
    head.append(heading);
  });
  byId("rows").tHead.replaceChildren(head);
  byId("rows").tBodies[0].replaceChildren(
    ...rows.sort(compare).map((row) => {
      const index = row.pop();
      const line = make("tr", "");
      line.dataset.clip = String(index);
      line.onclick = () => {
        show(index);
        if (shown.includes(index)) byId("viewer").scrollIntoView({ block: "nearest" });
      };
      row.forEach((value, place) => line.append(make("td", value === null ? "" : place > 2 ? value.toFixed(decimals + 1) : String(value))));
      line.classList.toggle("chosen", index === chosen);
      return line;
    })
  );
}

for (const metric of data.metrics) {
  if (Object.values(data.values).some((found) => found[metric.key])) byId("metric").append(make("option", metric.label, { value: metric.key }));
}
byId("metric").onchange = fill;
fill();
