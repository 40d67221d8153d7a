// What a page does besides being read: it stays current, follows tails, and can be told to pause.
// Pages work without it. Nothing here makes markup of data: the server has escaped it.
"use strict";

const ROWS_MAX = 200;
const AGAIN_MS = 3000;
const byId = (id) => document.getElementById(id);

// --- one element made like another, in place: focus and selection stay where they are

function morph(from, to) {
  if (from.nodeType !== to.nodeType || from.nodeName !== to.nodeName) {
    from.replaceWith(to);
  } else if (from.nodeType === Node.ELEMENT_NODE) {
    morphAttributes(from, to);
    morphChildren(from, to);
  } else if (from.nodeValue !== to.nodeValue) {
    from.nodeValue = to.nodeValue;
  }
}

function morphAttributes(from, to) {
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name)) from.removeAttribute(name);
  }
}

function morphChildren(from, to) {
  const wanted = [...to.childNodes];
  const there = [...from.childNodes];
  wanted.forEach((node, place) => {
    if (place < there.length) morph(there[place], node);
    else from.append(node);
  });
  there.slice(wanted.length).forEach((node) => node.remove());
}

function show(id, markup) {
  const place = byId(id);
  if (!place) return;
  const made = place.cloneNode(false);
  made.innerHTML = markup;
  morphChildren(place, made);
}

// --- a stream that rests while nobody looks

class Stream {
  constructor(address, listeners) {
    this.address = address;
    this.listeners = listeners;
    this.source = null;
    this.wanted = false;
    document.addEventListener("visibilitychange", () => this.settle());
  }

  want(wanted) {
    this.wanted = wanted;
    this.settle();
  }

  settle() {
    const runs = this.wanted && !document.hidden;
    if (runs && !this.source) this.open();
    if (!runs && this.source) {
      this.source.close();
      this.source = null;
    }
  }

  open() {
    this.source = new EventSource(this.address);
    for (const [name, take] of Object.entries(this.listeners)) {
      this.source.addEventListener(name, (event) => take(event.data ? JSON.parse(event.data) : null));
    }
    this.source.onerror = () => {
      // A refusal ends it for good, so that it is asked for anew; a lost connection comes back.
      if (this.source && this.source.readyState === EventSource.CLOSED) {
        this.source = null;
        setTimeout(() => this.settle(), AGAIN_MS);
      }
    };
  }
}

function tell(text) {
  const trouble = byId("trouble");
  if (trouble.textContent !== text) trouble.textContent = text;
  trouble.hidden = !text;
}

// --- the page stays current

function startLive() {
  const pause = byId("pause");
  const words = byId("pause-words");
  if (document.body.dataset.live !== "yes" || !document.querySelector('[id^="live_"]')) return;
  const live = new Stream(location.href, {
    parts: (parts) => {
      tell("");
      Object.entries(parts).forEach(([id, markup]) => show(id, markup));
    },
    trouble: ({ text }) => tell(text),
  });
  const set = (paused) => {
    pause.setAttribute("aria-pressed", String(paused));
    words.textContent = paused ? "Paused" : "Live";
    sessionStorage.setItem("paused", paused ? "yes" : "");
    live.want(!paused);
  };
  pause.hidden = false;
  pause.setAttribute("aria-label", "Pause live updates");
  pause.addEventListener("click", () => set(pause.getAttribute("aria-pressed") !== "true"));
  set(sessionStorage.getItem("paused") === "yes");
}

// --- tails

function startTail(tail) {
  const button = tail.querySelector(".follow");
  const told = tail.querySelector(".told");
  const body = tail.querySelector("tbody");
  let came = 0;
  let skipped = 0;
  const stream = new Stream(tail.dataset.tail, {
    rows: (rows) => {
      tail.querySelectorAll(".empty").forEach((one) => one.remove());
      const made = document.createElement("tbody");
      made.innerHTML = rows.html;
      const known = new Set([...body.rows].map((row) => row.dataset.at).filter(Boolean));
      const fresh = [...made.rows].filter((row) => !known.has(row.dataset.at));
      fresh.forEach((row) => row.classList.add("new"));
      body.prepend(...fresh);
      [...body.rows].slice(ROWS_MAX).forEach((row) => row.remove());
      came += fresh.length;
      skipped += rows.skipped;
      told.textContent = `${came.toLocaleString("en")} came` +
        (skipped ? `, ${skipped.toLocaleString("en")} more were too many to show` : "");
    },
    problem: (problem) => { told.textContent = problem.detail; },
  });
  button.hidden = false;
  button.addEventListener("click", () => {
    const follows = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(follows));
    button.textContent = follows ? "Following: stop" : "Follow live";
    if (follows) told.textContent = "Waiting for what comes";
    stream.want(follows);
  });
}

// --- a token behind the # of the address signs in: it is sent to no server, and kept in no log

function signIn() {
  const form = byId("sign-in");
  const token = decodeURIComponent(location.hash.slice(1));
  if (!form || !token) return;
  history.replaceState(null, "", location.pathname + location.search);
  form.elements.token.value = token;
  form.submit();
}

startLive();
document.querySelectorAll("[data-tail]").forEach(startTail);
signIn();
