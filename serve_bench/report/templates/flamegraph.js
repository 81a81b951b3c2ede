(function () {
  "use strict";
  var CHAR = 6.6;
  var svg = document.querySelector("svg.flame") || document.documentElement;
  var frames = Array.prototype.slice.call(svg.querySelectorAll(".frame"));
  var width = svg.viewBox.baseVal.width;
  var said = document.querySelector(".said");
  var counted = document.querySelector(".found");
  var input = document.querySelector("input[type=search]");

  function number(frame, name) { return parseFloat(frame.getAttribute("data-" + name)); }

  function label(name, room) {
    if (room < 3) { return ""; }
    return name.length <= room ? name : name.slice(0, Math.max(room - 2, 0)) + "..";
  }

  function zoom(to) {
    var x = to ? number(to, "x") : 0, w = to ? number(to, "w") : 1, d = to ? number(to, "d") : 0;
    frames.forEach(function (frame) {
      var fx = number(frame, "x"), fw = number(frame, "w"), fd = number(frame, "d");
      var above = fd < d && fx <= x + 1e-9 && fx + fw >= x + w - 1e-9;
      var within = fd >= d && fx >= x - 1e-9 && fx + fw <= x + w + 1e-9;
      frame.style.display = above || within ? "" : "none";
      frame.classList.toggle("above", above);
      var left = above ? 0 : (fx - x) / w * width, wide = above ? width : fw / w * width;
      var rect = frame.querySelector("rect"), text = frame.querySelector("text");
      rect.setAttribute("x", left);
      rect.setAttribute("width", Math.max(wide - 0.4, 0.1));
      text.setAttribute("x", left + 3);
      text.textContent = label(frame.getAttribute("data-name"), Math.floor((wide - 6) / CHAR));
    });
  }

  function search(pattern) {
    var test = null;
    if (pattern) {
      try { test = new RegExp(pattern, "i"); } catch (error) { show("no valid pattern: " + pattern); return; }
    }
    var spans = [], hits = 0;
    frames.forEach(function (frame) {
      var hit = test !== null && test.test(frame.getAttribute("data-name"));
      frame.classList.toggle("found", hit);
      if (hit) { hits += 1; spans.push([number(frame, "x"), number(frame, "x") + number(frame, "w")]); }
    });
    spans.sort(function (one, other) { return one[0] - other[0]; });
    var share = 0, end = 0;
    spans.forEach(function (span) {
      if (span[1] > end) { share += span[1] - Math.max(span[0], end); end = span[1]; }
    });
    show(test === null ? "" : hits + " frames, " + (100 * share).toFixed(1) + " % of the width");
  }

  function show(text) { (counted && counted.tagName !== "g" ? counted : said).textContent = text; }

  frames.forEach(function (frame) {
    frame.addEventListener("click", function () { zoom(frame); });
    frame.addEventListener("mouseover", function () {
      said.textContent = frame.querySelector("title").textContent;
    });
  });
  Array.prototype.forEach.call(document.querySelectorAll("[data-do]"), function (button) {
    button.addEventListener("click", function () {
      if (button.getAttribute("data-do") === "reset") { zoom(null); } else { search(prompt("Search")); }
    });
  });
  if (input) { input.addEventListener("input", function () { search(input.value); }); }
  document.addEventListener("keydown", function (event) { if (event.key === "Escape") { zoom(null); } });
})();
