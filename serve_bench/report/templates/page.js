// What a page does: draws its charts, whose legends switch series and whose time can be zoomed,
// sorts tables, changes between light and dark, saves the records.
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

  // What the reader has switched off, by chart, and the part of the time that is shown, by section.
  var off = {}, shown = {};

  function zooms(place) { return (data.charts[place.id].usermeta || {}).zoom; }
  function sectionOf(place) { var own = place.closest("section"); return own ? own.id : ""; }

  function specOf(place) {
    var spec = JSON.parse(JSON.stringify(data.charts[place.id]));
    var hidden = off[place.id] || [], part = zooms(place) ? shown[sectionOf(place)] : null;
    if (hidden.length) {
      spec.data.values = spec.data.values.filter(function (one) {
        return hidden.indexOf(one.group) < 0;
      });
    }
    (part ? spec.layer : []).forEach(function (layer) {
      if (layer.encoding.x.field === "x") { layer.encoding.x.scale.domain = part; }
    });
    return spec;
  }

  var turns = {}; // how often a place was drawn: what is begun later replaces what is late

  function draw(place) {
    var words = place.getAttribute("aria-label");
    var spec = specOf(place);
    var inner = document.createElement("div");
    turns[place.id] = (turns[place.id] || 0) + 1;
    var width = widthOf(place);
    if (spec.width === "container" || spec.width === undefined) { spec.width = width; }
    place.dataset.width = String(width);
    place.replaceChildren(inner);
    return Promise.resolve().then(function () {
      return embed(inner, spec);
    }).then(function () {
      place.dataset.drawn = "yes";
      legend(place);
    }, function (error) {
      place.dataset.drawn = "no";
      var why = String(error && error.message || error);
      say(place, "This chart could not be drawn (" + why + "). What it shows: " + words);
    });
  }

  // ------------------------------------------------------------------ legends
  var SVG = "http://www.w3.org/2000/svg";
  var SHAPES = { // in a square from -1 to 1
    circle: "M-.8 0a.8 .8 0 1 1 1.6 0a.8 .8 0 1 1 -1.6 0", square: "M-.75 -.75h1.5v1.5h-1.5z",
    "triangle-up": "M0 -.85L.9 .7H-.9z", "triangle-down": "M0 .85L.9 -.7H-.9z",
    "triangle-left": "M-.85 0L.7 .9V-.9z", "triangle-right": "M.85 0L-.7 .9V-.9z",
    diamond: "M0 -1L.75 0L0 1L-.75 0z",
    cross: "M-.3 -.9H.3V-.3H.9V.3H.3V.9H-.3V.3H-.9V-.3H-.3z"
  };

  function element(tag, looks, parent) {
    var one = document.createElementNS(SVG, tag);
    Object.keys(looks).forEach(function (name) { one.setAttribute(name, looks[name]); });
    parent.appendChild(one);
    return one;
  }

  function symbol(entry, parent) {
    var wide = entry.strokeDash ? 26 : 12;
    var svg = element("svg", { width: wide, height: 12, "aria-hidden": "true" }, parent);
    svg.style.color = entry.color;
    if (entry.strokeDash) {
      element("line", { x1: 0, x2: wide, y1: 6, y2: 6, stroke: "currentColor", "stroke-width": 2,
        "stroke-dasharray": entry.strokeDash[1] ? entry.strokeDash.join(" ") : "none" }, svg);
    }
    element("path", { d: SHAPES[entry.shape], fill: "currentColor",
      transform: "translate(" + wide / 2 + " 6) scale(5)" }, svg);
  }

  function tool(tag, text, parent, act) {
    var one = document.createElement(tag);
    one.textContent = text;
    if (tag === "button") { one.type = "button"; one.addEventListener("click", act); }
    parent.appendChild(one);
    return one;
  }

  // The series of a chart, with the looks that its layers give them.
  function entriesOf(place) {
    var entries = [];
    data.charts[place.id].layer.forEach(function (layer) {
      ["color", "shape", "strokeDash"].forEach(function (channel) {
        var looks = layer.encoding[channel];
        if (!looks || looks.field !== "group") { return; }
        looks.scale.domain.forEach(function (name, at) {
          entries[at] = entries[at] || { name: name, shape: "square" };
          entries[at][channel] = looks.scale.range[at];
        });
      });
    });
    return entries;
  }

  // Made once for a chart, in front of it. A click hides a series or shows it again; a second click
  // in a row, or one with Shift, shows it alone, and again all.
  function legend(place) {
    var entries = entriesOf(place), buttons = [], former = [];
    if (place.dataset.tools || !entries.length) { return; }
    place.dataset.tools = "yes";
    var bar = document.createElement("div");
    bar.className = "legend";
    place.parentNode.insertBefore(bar, place);
    function change(hidden) {
      off[place.id] = hidden;
      buttons.forEach(function (button, at) {
        button.setAttribute("aria-pressed", String(hidden.indexOf(entries[at].name) < 0));
      });
      draw(place);
    }
    function names(but) {
      return entries.map(function (one) { return one.name; }).filter(function (one) {
        return one !== but;
      });
    }
    entries.forEach(function (entry) {
      var fixed = entries.length < 2;
      var one = tool(fixed ? "span" : "button", "", bar, function (event) {
        var hidden = event.detail === 2 ? former : off[place.id] || [];
        var alone = hidden.length === entries.length - 1 && hidden.indexOf(entry.name) < 0;
        former = hidden; // before the first of two clicks
        if (event.shiftKey || event.detail === 2) {
          change(alone ? [] : names(entry.name));
        } else if (hidden.indexOf(entry.name) >= 0) {
          change(hidden.filter(function (one) { return one !== entry.name; }));
        } else {
          change(alone ? [] : hidden.concat(entry.name)); // nothing left: all again
        }
      });
      symbol(entry, one);
      one.appendChild(document.createTextNode(entry.name));
      if (!fixed) {
        one.setAttribute("aria-pressed", "true");
        one.title = "Hide or show; double-click: alone";
        buttons.push(one);
      }
    });
    if (zooms(place)) { zoomable(place, bar); }
  }

  // ------------------------------------------------------------------ zoom
  // Dragging over a chart of time shows that part of it, in all such charts of the section.
  function zoomable(place, bar) {
    var hint = tool("span", "Drag to zoom", bar), start = null, area = null;
    var back = tool("button", "whole time", bar, function () { show(null); });
    hint.className = "hint";
    back.className = "whole";
    back.hidden = true;
    place.classList.add("zoomable");

    function plot() { return place.querySelector("svg .background").getBoundingClientRect(); }
    function now() { return data.charts[place.id].layer[0].encoding.x.scale.domain; }
    function show(part) {
      shown[sectionOf(place)] = part;
      each(".drawing.zoomable", function (one) {
        if (sectionOf(one) !== sectionOf(place)) { return; }
        one.parentNode.querySelector(".whole").hidden = part === null;
        if (one.dataset.drawn === "yes") { draw(one); }
      });
    }
    function end() {
      if (area) { area.remove(); }
      start = area = null;
    }
    place.addEventListener("pointerdown", function (event) {
      var own = plot();
      if (event.button || event.clientX < own.left || event.clientX > own.right) { return; }
      start = event.clientX;
      place.setPointerCapture(event.pointerId);
      event.preventDefault(); // no text is selected
    });
    place.addEventListener("pointermove", function (event) {
      if (start === null) { return; }
      var own = plot(), home = place.getBoundingClientRect();
      var at = Math.max(own.left, Math.min(event.clientX, own.right));
      if (!area) {
        area = document.createElement("div");
        area.className = "zoom";
        place.appendChild(area);
      }
      area.style.left = Math.min(start, at) - home.left + "px";
      area.style.width = Math.abs(at - start) + "px";
      area.style.top = own.top - home.top + "px";
      area.style.height = own.height + "px";
    });
    place.addEventListener("pointerup", function (event) {
      if (start === null) { return; }
      var own = plot(), whole = shown[sectionOf(place)] || now();
      var ends = [start, Math.max(own.left, Math.min(event.clientX, own.right))].sort(
        function (one, other) { return one - other; });
      end();
      if (ends[1] - ends[0] < 6) { return; } // a click
      var part = ends.map(function (at) {
        return whole[0] + (at - own.left) / own.width * (whole[1] - whole[0]);
      });
      if (part[1] - part[0] > (now()[1] - now()[0]) / 1000) { show(part); }
    });
    place.addEventListener("pointercancel", end);
    place.addEventListener("dblclick", function () { show(null); });
  }

  function drawAll() {
    var waiting = Promise.resolve();
    each(".drawing", function (place) {
      waiting = waiting.then(function () { return draw(place); });
    });
    return waiting.then(function () { root.dataset.ready = "yes"; });
  }
  // What is long stays folded on paper too: told before charts are drawn, which are long as text.
  var LONG = 6000;
  each("details", function (fold) {
    if (fold.innerHTML.length > LONG) { fold.classList.add("long"); }
  });
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
    var spec = Object.assign(specOf(place), { width: width });
    var inner = document.createElement("div");
    var turn = turns[place.id] = (turns[place.id] || 0) + 1;
    inner.style.cssText = "position:absolute;visibility:hidden;width:" + width + "px";
    place.appendChild(inner);
    return embed(inner, spec).then(function () {
      if (turns[place.id] !== turn) { return inner.remove(); }
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

  // ------------------------------------------------------------------ tables
  // A click on the name of a column sorts by it, figures from the largest; a second turns that
  // round, a third restores the order. Rows stay in their group, and warnings with their row.
  var LEAST = 3;

  function keyOf(row, at) {
    var cell = row.cells[at], text = cell.textContent.trim();
    var value = cell.dataset.value === undefined ? null : JSON.parse(cell.dataset.value);
    if (value !== null) { return value; }
    var figure = /^[<>]?\s*(-?[\d,]*\d(?:\.\d+)?)/.exec(text);
    if (figure) { return parseFloat(figure[1].replace(/,/g, "")); }
    return text === "" || text === "-" ? null : text;
  }
  function compared(one, other) {
    if (typeof one === "number" && typeof other === "number") { return one - other; }
    if (typeof one !== typeof other) { return typeof one === "number" ? -1 : 1; }
    return String(one).localeCompare(String(other), undefined, { numeric: true });
  }
  function rowsOf(body) {
    var head = [], rows = [];
    Array.prototype.forEach.call(body.rows, function (row) {
      if (row.classList.contains("group")) { head.push(row); }
      else { rows.push(row); }
    });
    return { head: head, rows: rows };
  }

  each(".table table", function (table) {
    var bodies = Array.prototype.map.call(table.tBodies, function (body) {
      return { body: body, parts: rowsOf(body) };
    });
    if (!bodies.some(function (one) { return one.parts.rows.length >= LEAST; })) { return; }
    each("thead th", function (head, at) {
      var button = document.createElement("button"), down = head.classList.contains("number");
      if (down && table.dataset.unlike) { return; }
      button.type = "button";
      button.className = "sort";
      button.append.apply(button, Array.prototype.slice.call(head.childNodes));
      head.appendChild(button);
      button.addEventListener("click", function () {
        var orders = down ? ["descending", "ascending", null] : ["ascending", "descending", null];
        var to = orders[(orders.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
        each("thead th", function (one) { one.removeAttribute("aria-sort"); }, table);
        if (to) { head.setAttribute("aria-sort", to); }
        bodies.forEach(function (one) {
          var rows = one.parts.rows.slice(), sign = to === "descending" ? -1 : 1;
          if (to) {
            rows.sort(function (a, b) {
              var x = keyOf(a, at), y = keyOf(b, at);
              if (x === null || y === null) { return (x === null) - (y === null); } // last
              return sign * compared(x, y);
            });
          }
          one.body.append.apply(one.body, one.parts.head.concat(rows));
        });
      });
    }, table);
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
