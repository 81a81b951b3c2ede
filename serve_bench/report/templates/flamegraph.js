// Each flamegraph of a page, or the one that is a file of its own: zoom, search, words of a frame.
(function () {
  "use strict";
  var CHAR = 6.6;

  function number(frame, name) { return parseFloat(frame.getAttribute("data-" + name)); }

  function label(name, room) {
    if (room < 3) { return ""; }
    return name.length <= room ? name : name.slice(0, Math.max(room - 2, 0)) + "..";
  }

  function setUp(svg) {
    var frames = Array.prototype.slice.call(svg.querySelectorAll(".frame"));
    var home = svg.closest(".flames");
    var around = home || document;
    var width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
    var said = around.querySelector(".said");
    var hits = around.querySelector(".hits") || said;
    var input = around.querySelector("input[type=search]");
    var zoomed = null;

    function zoom(to) {
      var x = to ? number(to, "x") : 0, w = to ? number(to, "w") : 1, d = to ? number(to, "d") : 0;
      zoomed = to;
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
        try { test = new RegExp(pattern, "i"); } catch (error) {
          hits.textContent = "no valid pattern: " + pattern;
          return;
        }
      }
      var spans = [], count = 0;
      frames.forEach(function (frame) {
        var hit = test !== null && test.test(frame.getAttribute("data-name"));
        frame.classList.toggle("found", hit);
        if (hit) { count += 1; spans.push([number(frame, "x"), number(frame, "x") + number(frame, "w")]); }
      });
      spans.sort(function (one, other) { return one[0] - other[0]; });
      var share = 0, end = 0;
      spans.forEach(function (span) {
        if (span[1] > end) { share += span[1] - Math.max(span[0], end); end = span[1]; }
      });
      hits.textContent = test === null ? "" : count + " frames, " + (100 * share).toFixed(1) + " % of the width";
    }

    // Within a page as wide as its place, so that words keep their size on a phone too.
    function fit() {
      var room = home ? svg.parentNode.clientWidth : 0;
      if (room < 1 || room === width) { return; }
      width = room;
      svg.setAttribute("width", width);
      svg.setAttribute("viewBox", "0 0 " + width + " " + height);
      zoom(zoomed);
    }

    frames.forEach(function (frame) {
      frame.addEventListener("click", function () { zoom(frame); });
      frame.addEventListener("mouseover", function () {
        said.textContent = frame.querySelector("title").textContent;
      });
    });
    Array.prototype.forEach.call(around.querySelectorAll("[data-do]"), function (button) {
      button.addEventListener("click", function () {
        if (button.getAttribute("data-do") === "reset") { zoom(null); } else { search(prompt("Search")); }
      });
    });
    if (input) { input.addEventListener("input", function () { search(input.value); }); }
    document.addEventListener("keydown", function (event) { if (event.key === "Escape") { zoom(null); } });
    window.addEventListener("resize", fit);
    document.addEventListener("toggle", fit, true); // within a fold it has no width before
    fit();
  }

  Array.prototype.forEach.call(document.querySelectorAll("svg.flame"), setUp);
})();
