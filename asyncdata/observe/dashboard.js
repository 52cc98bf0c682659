"use strict";
const main = document.querySelector("main");
const news = document.getElementById("news");
const gone = document.getElementById("gone");
const save = document.querySelector("header a");
const timeline = document.getElementById("timeline");
const source = new EventSource("events");

// Make `old` equal to `fresh`, and touch only what differs: focus, selection, scrolling and what is open stay.
function update(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) return old.data === fresh.data || (old.data = fresh.data);
  if (old.dataset?.open !== fresh.dataset?.open) old.open = fresh.hasAttribute("open");
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  let at = old.firstChild;
  for (const node of [...fresh.childNodes]) {
    const same = node.id ? [...old.children].find((one) => one.id === node.id) : at?.id ? null : at;
    if (same && same === at) at = at.nextSibling;
    else old.insertBefore(same ?? node, at);
    if (same) update(same, node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

source.onmessage = (event) => {
  gone.hidden = true;
  save.hidden = false;
  const fresh = new DOMParser().parseFromString(`<main>${JSON.parse(event.data)}</main>`, "text/html").querySelector("main");
  update(main, fresh);
  const said = main.querySelector("[data-news]")?.dataset.news ?? "";
  if (news.textContent !== said) news.textContent = said; // a screen reader reads it out
};

function ended(words, state) {
  gone.hidden = false;
  gone.classList.toggle("alarm", state !== "ended");
  save.hidden = true; // nobody would answer
  gone.textContent = words;
  for (const one of main.querySelectorAll(".running, .not-begun")) {
    one.classList.remove("running", "not-begun");
    one.querySelector(".state").textContent = state;
    const left = one.querySelector(".progress span");
    if (left) left.textContent = left.textContent.replace(/, [^,]* left$/, "");
    const walker = document.createTreeWalker(one, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replace(/\bnow$/, "at the end");
  }
}

source.onerror = () => ended("The program does not answer, or has ended. This is what it told last.", "no answer");
source.addEventListener("end", () => {
  source.close();
  ended("The program has ended. This is what it told last.", "ended");
});

// Only while the timeline is open the program records what runs.
timeline.addEventListener("toggle", async () => {
  while (timeline.open) {
    const reply = await fetch("timeline").catch(() => null);
    if (!reply?.ok) break;
    const drawn = new DOMParser().parseFromString(await reply.text(), "text/html");
    timeline.lastElementChild.replaceChildren(drawn.querySelector("svg"));
  }
});
