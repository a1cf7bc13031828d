// After each change, sends the settings to the server and shows the sentences in their new colours.
const form = document.querySelector("form");
const shown = document.querySelector("#sentences");
const problem = document.querySelector("#problem");

function value(input) {
  switch (input.dataset.kind) {
    case "number": return input.valueAsNumber;
    case "boolean": return input.checked;
    case "text": return input.value;
    default: return JSON.parse(input.value);
  }
}

function settings() {
  const all = {};
  for (const input of form.querySelectorAll("[data-path]")) {
    const path = JSON.parse(input.dataset.path);
    let parent = all;
    for (let n = 0; n + 1 < path.length; n++) {
      parent = parent[path[n]] ??= typeof path[n + 1] === "number" ? [] : {};
    }
    parent[path[path.length - 1]] = value(input);
  }
  return all;
}

async function score() {
  const response = await fetch("/sentences", { method: "POST", body: JSON.stringify({ settings: settings() }) });
  const reply = await response.json();
  if (!response.ok) throw new Error(reply.error);
  shown.innerHTML = reply.html;
}

let isScoring = false;
let isChanged = false;
async function changed() {
  isChanged = true;
  if (isScoring) return;
  isScoring = true;
  while (isChanged) {
    isChanged = false;
    try {
      await score();
      problem.textContent = "";
    } catch (error) {
      problem.textContent = error.message;
    }
  }
  isScoring = false;
}

form.addEventListener("input", changed);
form.addEventListener("submit", (event) => event.preventDefault());
