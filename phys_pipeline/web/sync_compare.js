// Two videos on one clock: the left one leads, the right one is nudged after it. Frames are sought at their middles.
const root = element.querySelector(".player");
const one = (selector) => root.querySelector(selector);
const stage = one(".stage"), seek = one(".seek"), plot = one(".plot"), live = one(".live"), rate = one(".rate"), view = one(".view");
const figures = [one(".left"), one(".right")];
const videos = figures.map((figure) => figure.querySelector("video"));
const overlays = figures.map((figure) => figure.querySelector("canvas"));
const [leader, follower] = videos;
const COLOURS = ["#0072b2", "#d55e00"], LIGHT = ["#56b4e9", "#f0a35e"];
const KINDS = ["translation", "rotation", "scaling"];
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let fps = 1, frames = 1, series = [null, null], labels = ["", ""], single = true, starting = 0, corrections = 0;
let shownTime = -1, token = "", plays = 0, replays = 0, wentBack = false, since = null, shown = 0;

const given = () => (typeof props.value === "string" ? JSON.parse(props.value || "{}") : props.value || {});
const duration = () => frames / fps;
const frameAt = (time) => Math.min(frames - 1, Math.max(0, Math.floor(time * fps + 1e-3)));
const middleOf = (frame) => (Math.min(frames - 1, Math.max(0, frame)) + 0.5) / fps;
const speed = () => Number(rate.value);
const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();
const sought = (video) => (video.seeking ? new Promise((done) => {
  video.addEventListener("seeked", done, { once: true });
  setTimeout(done, 2000);
}) : Promise.resolve());

function windowAt(scores, time) {
  const windows = scores.windows;
  let best = 0;
  windows.forEach((window, index) => {
    if (Math.abs((window.start + window.end) / 2 - time) < Math.abs((windows[best].start + windows[best].end) / 2 - time)) best = index;
  });
  return windows[best];
}

function sized(canvas) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
  if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width, height];
}

function drawOverlay(index, time) {
  const [pen, width] = sized(overlays[index]);
  const scores = series[index];
  if (!scores || !one(".shown").checked || width < 120) return;
  const now = windowAt(scores, time), rows = ["composite", ...KINDS], line = 19;
  pen.fillStyle = "rgba(16,19,25,.72)";
  pen.fillRect(8, 8, 158, rows.length * line + 12);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "top";
  rows.forEach((name, row) => {
    const value = now[name], top = 14 + row * line;
    pen.fillStyle = "#ffffff";
    pen.textAlign = "left";
    pen.fillText(name === "composite" ? "motion loss" : name, 15, top);
    pen.textAlign = "right";
    pen.fillText(value.toFixed(2), 159, top);
    pen.fillStyle = LIGHT[index];
    pen.fillRect(15, top + 14, 144 * Math.min(1, Math.max(0, value)), 2.5);
  });
}

function scaleOf(width, height) {
  const values = series.filter(Boolean).flatMap((scores) => scores.windows.map((window) => window.composite));
  const top = Math.max(0.5, Math.ceil(Math.max(...values, 0) * 10) / 10);
  return {
    top,
    x: (time) => 40 + (width - 52) * Math.min(1, Math.max(0, time / duration())),
    y: (value) => height - 24 - (height - 48) * Math.min(1, value / top),
  };
}

function drawPlot(time) {
  if (!series.some(Boolean)) return;
  const [pen, width, height] = sized(plot);
  if (width < 60) return;
  const { top, x, y } = scaleOf(width, height);
  pen.font = "11px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "right";
  pen.strokeStyle = style("--border-color-primary");
  pen.fillStyle = style("--body-text-color");
  pen.lineWidth = 1;
  for (const value of [0, top / 2, top]) {
    pen.beginPath();
    pen.moveTo(40, y(value));
    pen.lineTo(width - 12, y(value));
    pen.stroke();
    pen.fillText(value.toFixed(2), 34, y(value));
  }
  pen.textAlign = "center";
  pen.fillText("0 s", 40, height - 10);
  pen.fillText(`${duration().toFixed(1)} s`, width - 20, height - 10);
  series.forEach((scores, index) => {
    if (!scores) return;
    const points = scores.windows.map((window) => [x((window.start + window.end) / 2), y(window.composite)]);
    pen.strokeStyle = pen.fillStyle = COLOURS[index];
    pen.lineWidth = 2;
    pen.setLineDash(index ? [6, 4] : []);
    pen.beginPath();
    points.forEach(([px, py], number) => (number ? pen.lineTo(px, py) : pen.moveTo(px, py)));
    pen.stroke();
    pen.setLineDash([]);
    for (const [px, py] of points) {
      pen.beginPath();
      if (index) pen.rect(px - 3.5, py - 3.5, 7, 7);
      else pen.arc(px, py, 4, 0, 7);
      pen.fill();
    }
    const left = 52 + index * 200;
    pen.textAlign = "left";
    if (index) pen.fillRect(left, 4, 7, 7);
    else { pen.beginPath(); pen.arc(left + 4, 8, 4, 0, 7); pen.fill(); }
    pen.fillStyle = style("--body-text-color");
    pen.fillText((labels[index] || "").slice(0, 28), left + 13, 9);
  });
  pen.strokeStyle = style("--body-text-color");
  pen.lineWidth = 1.5;
  pen.beginPath();
  pen.moveTo(x(time), 16);
  pen.lineTo(x(time), height - 22);
  pen.stroke();
  element.dataset.playhead = x(time).toFixed(1);
}

function paint(time) {
  const frame = frameAt(time);
  seek.value = String(frame);
  seek.setAttribute("aria-valuetext", `frame ${frame + 1} of ${frames}`);
  one(".time").textContent = `frame ${frame + 1} of ${frames}, ${(frame / fps).toFixed(2)} s`;
  drawOverlay(0, time);
  if (!single) drawOverlay(1, time);
  drawPlot(time);
  element.dataset.frame = String(frame);
  shownTime = time;
}

function toggled() {
  const playing = !leader.paused, button = one(".play");
  button.classList.toggle("playing", playing);
  button.setAttribute("aria-label", playing ? "Pause" : "Play");
}

function setTime(time) {
  const bounded = Math.max(0, Math.min(duration() - 0.25 / fps, time));
  for (const video of videos) if (video.src) video.currentTime = bounded;
  paint(bounded);
}

function pause() {
  starting += 1;
  for (const video of videos) { video.pause(); video.playbackRate = speed(); }
  if (!single) follower.currentTime = leader.currentTime;
  toggled();
}

async function play() {
  if (!leader.src) return;
  const mine = ++starting;
  for (const video of videos) video.playbackRate = speed();
  if (leader.ended || leader.currentTime >= duration() - 0.6 / fps) setTime(0);
  if (!single) follower.currentTime = leader.currentTime;
  await Promise.all(videos.map(sought));
  if (mine !== starting) return;
  try {
    await Promise.all((single ? [leader] : videos).map((video) => video.play()));
  } catch (error) {
    if (mine === starting && error.name !== "AbortError") live.textContent = "The browser did not start the videos. Press Play.";
  }
  toggled();
  follow();
}

function follow() {
  const time = leader.currentTime;
  if (!single && follower.src) {
    const drift = follower.currentTime - time;
    if (!leader.paused && !leader.seeking && !follower.seeking) {
      if (Math.abs(drift) > 1.5 / fps) { follower.currentTime = time; corrections += 1; }
      else follower.playbackRate = speed() * (1 - Math.max(-0.1, Math.min(0.1, drift * 2)));
    }
    element.dataset.drift = drift.toFixed(4);
    element.dataset.corrections = String(corrections);
  }
  paint(time);
  if (leader.paused) return;
  if (leader.requestVideoFrameCallback) leader.requestVideoFrameCallback(follow);
  else requestAnimationFrame(follow);
}

function step(by) {
  lookAt(frameAt(leader.currentTime) + by);
  live.textContent = one(".time").textContent;
}

// What was seen so far: how often the videos reached their end, how often the viewer started them again after that, and the
// seconds since both could play. The token says of which videos.
function watched() {
  return { token, plays, replays, seconds: since === null ? 0 : (performance.now() - since) / 1000 };
}
root.watched = watched;

// The viewer plays: it counts where that starts the videos again after they were seen whole.
function playAgain() {
  if (plays && (wentBack || leader.ended || leader.currentTime >= duration() - 0.6 / fps)) replays += 1;
  wentBack = false;
  play();
}

function lookAt(frame) {
  wentBack ||= frame < frameAt(leader.currentTime) - 1;
  pause();
  setTime(middleOf(frame));
}

function finished() {
  plays += 1;
  wentBack = false;
  element.dataset.plays = String(plays);
  trigger("played", watched());
  if (one(".loop").checked && !document.hidden) { setTime(0); play(); } else pause();
}

function table() {
  const head = one("thead"), body = one("tbody");
  head.replaceChildren();
  body.replaceChildren();
  const cell = (row, kind, text) => row.appendChild(Object.assign(document.createElement(kind), { textContent: text }));
  const top = head.insertRow();
  for (const name of ["video", "from, s", "to, s", "motion loss", ...KINDS]) {
    const heading = cell(top, "th", name);
    heading.scope = "col";
  }
  series.forEach((scores, index) => (scores ? scores.windows : []).forEach((window) => {
    const row = body.insertRow();
    cell(row, "td", labels[index]);
    for (const name of ["start", "end", "composite", ...KINDS]) cell(row, "td", window[name].toFixed(2));
  }));
}

function describe() {
  const parts = series.map((scores, index) => scores && `${labels[index]}: motion loss ${scores.overall.composite.toFixed(2)}, ` +
    `dynamic degree ${scores.overall.dynamic_degree.toFixed(2)}, dominant motion ${scores.dominant}`);
  plot.setAttribute("aria-label", `Motion loss per window. ${parts.filter(Boolean).join(". ")}`);
}

function setView(name) {
  view.value = name;
  stage.dataset.view = single ? "side" : name;
  root.classList.toggle("wiping", name === "wipe");
  paint(leader.currentTime || 0);
}

function load() {
  const value = given();
  const files = [value.left, value.right];
  const changed = files.some((file, index) => ((file && (file.url || file.path)) || "") !== (videos[index].dataset.source || ""));
  fps = value.fps || 1;
  frames = value.frames || 1;
  series = value.series || [null, null];
  labels = value.labels || ["", ""];
  single = !files[1];
  seek.max = String(frames - 1);
  root.classList.toggle("empty", !files[0] && !files[1]);
  root.classList.toggle("single", single);
  root.classList.toggle("blind", Boolean(value.blind)); // left stays left
  root.classList.toggle("scored", series.some(Boolean));
  const fresh = changed || token !== (value.token || "");
  if (fresh) {
    pause();
    shown += 1;
    token = value.token || "";
    plays = replays = 0;
    wentBack = false;
    since = null;
    element.dataset.plays = "0";
    live.textContent = "";
  }
  videos.forEach((video, index) => {
    const source = (files[index] && (files[index].url || files[index].path)) || "";
    if (video.dataset.source !== source) {
      video.dataset.source = source;
      if (source) video.src = source; else video.removeAttribute("src");
      video.load();
    }
    video.setAttribute("aria-label", [labels[index], value.about].filter(Boolean).join(": "));
    figures[index].querySelector("figcaption").textContent = labels[index] || "";
    figures[index].querySelector(".box").style.aspectRatio = String(value.aspect || 1.5);
  });
  one(".hint").textContent = series.some((scores) => scores && scores.windows.length > 1)
    ? "Motion loss over time; lower is steadier. Drag or click to move in time."
    : "Motion loss; lower is steadier. The clip is as short as one window, so there is one value. Drag or click to move in time.";
  setView(view.value);
  table();
  describe();
  paint(fresh ? 0 : leader.currentTime || 0);
  element.dataset.loads = String(Number(element.dataset.loads || 0) + 1);
  if (fresh && files[0]) whenReady(() => { if (!calm.matches) play(); });
}

function whenReady(action) {
  const mine = starting, which = shown, wanted = single ? [leader] : videos;
  const check = () => {
    if (which !== shown) return stop();
    if (!wanted.every((video) => video.readyState >= 3)) return;
    stop();
    since ??= performance.now();
    if (mine === starting) action();
  };
  const stop = () => wanted.forEach((video) => video.removeEventListener("canplay", check));
  wanted.forEach((video) => video.addEventListener("canplay", check));
  check();
}

function dragged(target, move) {
  target.addEventListener("pointerdown", (event) => {
    target.setPointerCapture(event.pointerId);
    move(event);
    event.preventDefault();
  });
  target.addEventListener("pointermove", (event) => { if (target.hasPointerCapture(event.pointerId)) move(event); });
}

leader.addEventListener("ended", finished);
follower.addEventListener("ended", () => { if (!leader.ended) follower.pause(); });
leader.addEventListener("seeked", () => { if (leader.paused) paint(leader.currentTime); });
videos.forEach((video, index) => video.addEventListener("error", () => {
  if (video.dataset.source) live.textContent = `${labels[index] || "This video"} can't be played by this browser.`;
}));
one(".play").onclick = () => (leader.paused ? playAgain() : pause());
one(".previous").onclick = () => step(-1);
one(".next").onclick = () => step(1);
one(".home").onclick = () => lookAt(0);
seek.oninput = () => lookAt(Number(seek.value));
rate.onchange = () => { for (const video of videos) video.playbackRate = speed(); };
view.onchange = () => setView(view.value);
one(".wipe").oninput = (event) => stage.style.setProperty("--wipe", `${event.target.value}%`);
one(".swap").onclick = () => root.classList.toggle("swapped");
one(".shown").onchange = () => paint(leader.currentTime);
one(".whole").onclick = () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen().catch(() => {}));
one(".help").onclick = (event) => {
  const keys = one(".keys");
  keys.hidden = !keys.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!keys.hidden));
};
dragged(plot, (event) => {
  const bounds = plot.getBoundingClientRect();
  lookAt(frameAt(((event.clientX - bounds.left - 40) / (bounds.width - 52)) * duration()));
});
dragged(one(".divider"), (event) => {
  const bounds = stage.getBoundingClientRect();
  const share = Math.round(100 * Math.min(1, Math.max(0, (event.clientX - bounds.left) / bounds.width)));
  one(".wipe").value = String(share);
  stage.style.setProperty("--wipe", `${share}%`);
});

const faster = (by) => {
  rate.selectedIndex = Math.min(rate.options.length - 1, Math.max(0, rate.selectedIndex + by));
  rate.onchange();
};
const KEYS = {
  " ": () => one(".play").click(), k: () => one(".play").click(),
  ",": () => step(-1), ".": () => step(1), ArrowLeft: () => step(-1), ArrowRight: () => step(1),
  Home: () => one(".home").click(), End: () => lookAt(frames - 1),
  j: () => faster(-1), l: () => faster(1), r: () => one(".loop").click(), f: () => one(".whole").click(), "?": () => one(".help").click(),
  o: () => { if (series.some(Boolean)) one(".shown").click(); },
  s: () => { if (!single && !root.classList.contains("blind")) one(".swap").click(); },
  v: () => { if (!single && !root.classList.contains("blind")) setView(view.options[(view.selectedIndex + 1) % view.options.length].value); },
};
root.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || root.classList.contains("empty")) return;
  const target = event.target;
  if (target.matches("select, summary") || (target.matches("input[type=range]") && /^(Arrow|Home|End)/.test(event.key))) return;
  if (event.key === " " && target.matches("button, input")) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (action) { event.preventDefault(); action(); }
});
document.addEventListener("visibilitychange", () => { if (document.hidden) pause(); });
new IntersectionObserver((seen) => { if (!seen[seen.length - 1].isIntersecting && !leader.paused) pause(); }).observe(root);
new ResizeObserver(() => paint(shownTime < 0 ? 0 : leader.currentTime || 0)).observe(stage);
watch("value", load);
load();
