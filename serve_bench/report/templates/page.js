// What a page does: draws its charts, changes between light and dark, saves the records.
// Rule: texts of a run are data; none becomes markup or code. Nothing is stored, nothing is fetched.
// Colours of charts are pairs (light-dark of CSS): they follow the scheme, and paper, by themselves.
(function () {
  "use strict";
  var root = document.documentElement;

  function each(choice, act, within) {
    Array.prototype.forEach.call((within || document).querySelectorAll(choice), act);
  }

  // ------------------------------------------------------------------ light and dark
  var wanted = window.matchMedia("(prefers-color-scheme: dark)");
  var button = document.getElementById("scheme");
  var chosen = null; // by the reader of this page; until then the system's

  function dark() {
    return chosen === null ? wanted.matches : chosen === "dark";
  }
  function show() {
    if (chosen !== null) { root.dataset.scheme = chosen; }
    button.textContent = dark() ? "light page" : "dark page";
  }
  button.addEventListener("click", function () {
    chosen = dark() ? "light" : "dark";
    show();
  });
  wanted.addEventListener("change", show);
  button.hidden = false;
  show();

  // ------------------------------------------------------------------ charts
  var data = JSON.parse(document.getElementById("charts").textContent);

  // What is folded has no width of its own: that of the fold is taken until it is opened.
  function widthOf(place) {
    if (place.clientWidth > 0) { return "container"; }
    var fold = place.closest("details");
    while (fold && fold.clientWidth === 0) { fold = fold.parentElement.closest("details"); }
    return Math.max(280, (fold ? fold.clientWidth : 640) - 32);
  }

  function say(place, words) {
    var line = document.createElement("p");
    line.className = "instead";
    line.textContent = words;
    place.replaceChildren(line);
  }

  function embed(inner, spec) {
    // ast: expressions are interpreted, so that the page's policy can forbid eval.
    return window.vegaEmbed(inner, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, config: data.config, logLevel: 1,
      tooltip: { theme: "page" }
    });
  }

  function draw(place) {
    var words = place.getAttribute("aria-label");
    var spec = Object.assign({}, data.charts[place.id]);
    var inner = document.createElement("div");
    var width = widthOf(place);
    if (spec.width === "container" || spec.width === undefined) { spec.width = width; }
    place.dataset.width = String(width);
    place.replaceChildren(inner);
    return Promise.resolve().then(function () {
      return embed(inner, spec);
    }).then(function () {
      place.dataset.drawn = "yes";
    }, function (error) {
      place.dataset.drawn = "no";
      var why = String(error && error.message || error);
      say(place, "This chart could not be drawn (" + why + "). What it shows: " + words);
    });
  }

  function drawAll() {
    var waiting = Promise.resolve();
    each(".drawing", function (place) {
      waiting = waiting.then(function () { return draw(place); });
    });
    return waiting.then(function () { root.dataset.ready = "yes"; });
  }
  drawAll();

  document.addEventListener("toggle", function (event) {
    each(".drawing", function (place) {
      if (place.clientWidth > 0 && place.dataset.width !== "container") { draw(place); }
    }, event.target);
  }, true);

  // ------------------------------------------------------------------ paper
  // Charts are drawn anew as wide as a page of paper, so that their words keep their size. The one
  // on screen stands until its successor is whole: nothing is ever printed empty.
  var PAPER = 690;
  var opened = [];

  function redraw(place, width) {
    var spec = Object.assign({}, data.charts[place.id], { width: width });
    var inner = document.createElement("div");
    inner.style.cssText = "position:absolute;visibility:hidden;width:" + width + "px";
    place.appendChild(inner);
    return embed(inner, spec).then(function () {
      inner.style.cssText = "";
      place.replaceChildren(inner);
    }, function () { inner.remove(); });
  }

  window.addEventListener("beforeprint", function () {
    each("details:not([open]):not(.long)", function (fold) {
      fold.open = true;
      opened.push(fold);
    });
    each('.drawing[data-drawn="yes"]', function (place) { redraw(place, PAPER); });
  });
  window.addEventListener("afterprint", function () {
    opened.splice(0).forEach(function (fold) { fold.open = false; });
    each('.drawing[data-drawn="yes"]', draw);
  });

  // ------------------------------------------------------------------ records
  each("[data-records]", function (place) {
    var save = document.createElement("button");
    save.type = "button";
    save.textContent = "Save " + place.dataset.name;
    save.addEventListener("click", function () {
      var text = document.getElementById(place.dataset.records).textContent;
      var link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
      link.download = place.dataset.name;
      link.click();
      setTimeout(function () { URL.revokeObjectURL(link.href); }, 10000);
    });
    place.appendChild(save);
    place.hidden = false;
  });

  // ------------------------------------------------------------------ where one is
  var links = {};
  each("nav a", function (link) { links[link.getAttribute("href").slice(1)] = link; });
  if ("IntersectionObserver" in window) {
    var watcher = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting || !links[entry.target.id]) { return; }
        each("nav a[aria-current]", function (link) { link.removeAttribute("aria-current"); });
        links[entry.target.id].setAttribute("aria-current", "true");
      });
    }, { rootMargin: "-10% 0px -80% 0px" });
    each("section[id]", function (section) { watcher.observe(section); });
  }
})();
