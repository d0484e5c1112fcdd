// Shared by all pages: elements by id, and a button for light or dark.
"use strict";

const by_id = id => document.getElementById(id);

by_id("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
