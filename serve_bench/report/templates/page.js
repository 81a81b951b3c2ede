// What a page does: its legends switch series, charts over time zoom, tables are sorted, it changes
// between light and dark, and saves the records. Without it nothing is missing that can be read.
// Rule: texts of a run are data; none becomes markup or code. Nothing is stored, nothing is fetched.
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

  // ------------------------------------------------------------------ legends
  // A click on a name hides its marks or shows them again; a second click in a row, or one with
  // Shift, shows it alone, and again all.
  each("figure.chart", function (chart) {
    var groups = Array.from(chart.querySelectorAll(".series")), former = [];
    var buttons = Array.from(chart.querySelectorAll(".legend button"));
    function hidden() { return groups.map(function (group) { return group.style.display !== ""; }); }
    function hide(states) {
      groups.forEach(function (group, at) { group.style.display = states[at] ? "none" : ""; });
      buttons.forEach(function (button, at) {
        button.setAttribute("aria-pressed", String(!states[at]));
      });
    }
    buttons.forEach(function (button, at) {
      button.addEventListener("click", function (event) {
        var twice = event.shiftKey || event.detail === 2;
        var states = event.detail === 2 ? former : hidden();
        var alone = states.every(function (state, place) { return state === (place !== at); });
        former = states; // before the first of two clicks
        hide(states.map(function (state, place) {
          return !alone && (twice ? place !== at : (place === at) !== state);
        }));
      });
    });
  });

  // ------------------------------------------------------------------ zoom
  // Dragging over a chart of time shows that part of it, in all such charts of the section: its
  // course is made wider than its place, and the ticks are made anew.
  function zoom(section, part) {
    each(".course[data-time]", function (course) {
      var whole = course.dataset.time.split(" ").map(Number), ends = part || whole;
      var share = (ends[1] - ends[0]) / (whole[1] - whole[0]);
      course.setAttribute("width", 100 / share + "%");
      course.setAttribute("x", -100 * (ends[0] - whole[0]) / (ends[1] - ends[0]) + "%");
      course.setAttribute("overflow", part ? "hidden" : "visible");
      drawTicks(course.parentNode.querySelector(".ticks"), ends);
      course.closest("figure").querySelector(".whole").hidden = part === null;
    }, section);
  }
  function drawTicks(ticks, ends) {
    var line = ticks.querySelector("line"), text = ticks.querySelector("text");
    var least = (ends[1] - ends[0]) / 6, power = Math.pow(10, Math.floor(Math.log10(least)));
    var step = power * [1, 2, 5, 10].find(function (digit) { return digit * power >= least; });
    var lines = [], texts = [];
    for (var turn = Math.ceil(ends[0] / step); turn * step <= ends[1]; turn += 1) {
      var x = 100 * (turn * step - ends[0]) / (ends[1] - ends[0]) + "%";
      lines.push(line.cloneNode(true));
      texts.push(text.cloneNode(true));
      ["x1", "x2"].forEach(function (name) { lines[lines.length - 1].setAttribute(name, x); });
      texts[texts.length - 1].setAttribute("x", x);
      texts[texts.length - 1].textContent = Number((turn * step).toPrecision(9)).toLocaleString("en");
    }
    ticks.replaceChildren.apply(ticks, lines.concat(texts));
  }

  each(".drawing:has(.course[data-time])", function (place) {
    var section = place.closest("section"), course = place.querySelector(".course");
    var whole = course.dataset.time.split(" ").map(Number), start = null, area = null;
    var tools = place.parentNode.querySelector(".legend"), hint = document.createElement("span");
    var back = document.createElement("button");
    hint.className = "hint";
    hint.textContent = "Drag to zoom";
    back.className = "whole";
    back.type = "button";
    back.hidden = true;
    back.textContent = "whole time";
    back.addEventListener("click", function () { zoom(section, null); });
    tools.append(hint, back);
    place.classList.add("zoomable");

    function plot() { return place.querySelector("svg").getBoundingClientRect(); }
    function shown() { // the part of the time that is seen
      var share = parseFloat(course.getAttribute("width") || 100) / 100;
      var from = -parseFloat(course.getAttribute("x") || 0) / 100 / share;
      return [from, from + 1 / share].map(function (at) { return whole[0] + at * (whole[1] - whole[0]); });
    }
    function end() {
      if (area) { area.remove(); }
      start = area = null;
    }
    function within(event) {
      var box = plot();
      return Math.max(box.left, Math.min(event.clientX, box.right));
    }
    place.addEventListener("pointerdown", function (event) {
      if (event.button || event.clientX !== within(event)) { return; }
      start = event.clientX;
      place.setPointerCapture(event.pointerId);
      event.preventDefault(); // no text is selected
    });
    place.addEventListener("pointermove", function (event) {
      if (start === null) { return; }
      var box = plot(), home = place.getBoundingClientRect(), at = within(event);
      if (!area) {
        area = document.createElement("div");
        area.className = "zoom";
        place.appendChild(area);
      }
      area.style.left = Math.min(start, at) - home.left + "px";
      area.style.width = Math.abs(at - start) + "px";
      area.style.top = box.top - home.top + "px";
      area.style.height = box.height + "px";
    });
    place.addEventListener("pointerup", function (event) {
      if (start === null) { return; }
      var box = plot(), seen = shown(), at = within(event);
      var ends = [Math.min(start, at), Math.max(start, at)];
      end();
      if (ends[1] - ends[0] < 6) { return; } // a click
      var part = ends.map(function (end) {
        return seen[0] + (end - box.left) / box.width * (seen[1] - seen[0]);
      });
      if (part[1] - part[0] > (whole[1] - whole[0]) / 1000) { zoom(section, part); }
    });
    place.addEventListener("pointercancel", end);
    place.addEventListener("dblclick", function () { zoom(section, null); });
  });

  // ------------------------------------------------------------------ paper
  // What is long stays folded on paper too; charts do not count, which are long as text alone.
  var LONG = 6000, opened = [];
  each("details", function (fold) {
    var length = fold.innerHTML.length;
    each(".drawing", function (place) { length -= place.innerHTML.length; }, fold);
    fold.classList.toggle("long", length > LONG);
  });
  window.addEventListener("beforeprint", function () {
    each("details:not([open]):not(.long)", function (fold) {
      fold.open = true;
      opened.push(fold);
    });
  });
  window.addEventListener("afterprint", function () {
    opened.splice(0).forEach(function (fold) { fold.open = false; });
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
  root.dataset.ready = "yes";
})();
