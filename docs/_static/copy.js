// A button on every block of code that copies it: of a session only what was typed, without prompts and output.
"use strict";
function typed(block) {
  const text = block.textContent.replace(/\n$/, "");
  const lines = text.split("\n"), prompts = /^(>>> |\.\.\. |\$ )/;
  return prompts.test(text) ? lines.filter((line) => prompts.test(line)).map((line) => line.replace(prompts, "")).join("\n") : text;
}

async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea"); // a page that was opened as a file may have no clipboard
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

for (const box of document.querySelectorAll(".bd-article div.highlight")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await copy(typed(box.querySelector("pre")));
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  box.append(button);
}
