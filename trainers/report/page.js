"use strict";
// Adds sorting, hiding, zooming and value display to a report. The page is complete without this script.
(() => {
  const all = (query, within = document) => [...within.querySelectorAll(query)];
  const make = (tag, properties = {}, ...inside) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...inside);
    return made;
  };
  const button = (words, act) => make("button", { type: "button", textContent: words, onclick: act });
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const number = (value, digits = 4) => Number(value.toPrecision(digits)).toLocaleString("en");

  // --- Tables: a click on a heading sorts; the optimum stays last --------------------------------
  const key = (row, k) => {
    const text = row.cells[k].textContent.trim();
    const value = parseFloat(text.replace(/,/g, ""));
    return Number.isNaN(value) ? text : value;
  };
  const order = (a, b, sign) => {
    if (a === "" || b === "") return (a === "") - (b === ""); // empty cells come last
    const numbers = typeof a === "number" && typeof b === "number";
    return sign * (numbers ? a - b : String(a).localeCompare(String(b)));
  };
  for (const table of all("table.sort")) {
    const headings = all("thead th", table);
    headings.forEach((heading, k) => {
      const sort = () => {
        const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
        const last = (row) => row.classList.contains("optimum");
        const rows = [...table.tBodies[0].rows];
        rows.sort((a, b) => last(a) - last(b) || order(key(a, k), key(b, k), sign));
        table.tBodies[0].append(...rows);
      };
      const words = heading.textContent;
      heading.replaceChildren(button(words, sort));
    });
  }

  // --- Policies: hidden and shown ----------------------------------------------------------------
  const policies = [...new Set(all("[data-policy]").map((element) => element.dataset.policy))];
  const hidden = new Set();
  const summary = make("summary");
  const controls = document.getElementById("controls");
  const chips = policies.map((policy) => button(policy, () => {
    if (!hidden.delete(policy)) hidden.add(policy);
    show();
  }));
  const show = () => {
    for (const element of all("[data-policy]")) element.toggleAttribute("hidden", hidden.has(element.dataset.policy));
    for (const element of all("[data-run]")) { // a run is visible while one of its modes of play is visible
      const own = policies.filter((policy) => policy === element.dataset.run || policy.startsWith(`${element.dataset.run}, `));
      element.toggleAttribute("hidden", own.length > 0 && own.every((policy) => hidden.has(policy)));
    }
    chips.forEach((chip, k) => chip.setAttribute("aria-pressed", !hidden.has(policies[k])));
    summary.textContent = `${controls.dataset.what} shown: ${policies.length - hidden.size} of ${policies.length}`;
  };
  if (controls && policies.length > 1) {
    const every = (hide) => () => {
      policies.forEach((policy) => hide ? hidden.add(policy) : hidden.delete(policy));
      show();
    };
    const box = make("div", { className: "chips" }, ...chips, button("all", every(false)), button("none", every(true)));
    controls.className = "controls";
    controls.append(make("details", {}, summary, box));
    show();
  }

  // --- Values: shown at the pointer, or with the arrow keys --------------------------------------
  const probe = (figure, frame, name, find, move, tell) => {
    let state = null;
    const tip = make("output", { className: "tip", hidden: true });
    const lines = all(".frame", figure).map((each) => {
      const line = make("i", { className: "cursor", hidden: true });
      each.append(line);
      return line;
    });
    figure.append(tip);
    frame.tabIndex = 0;
    frame.setAttribute("role", "group");
    frame.setAttribute("aria-label", `${name}: arrow keys show values`);
    const hide = () => { for (const each of [tip, ...lines]) each.hidden = true; };
    const draw = (next) => {
      state = next;
      if (state === null) return hide();
      const [across, words] = tell(state);
      for (const line of lines) Object.assign(line, { hidden: false }).style.left = `${100 * across}%`;
      tip.textContent = words;
      tip.hidden = false;
      const x = frame.offsetLeft + across * frame.clientWidth;
      const room = figure.clientWidth - tip.offsetWidth;
      tip.style.left = `${clamp(x + 12 > room ? x - 12 - tip.offsetWidth : x + 12, 0, Math.max(0, room))}px`;
      tip.style.top = `${frame.offsetTop + 6}px`;
    };
    const point = (event) => {
      const area = frame.getBoundingClientRect();
      const across = (event.clientX - area.left) / area.width;
      if (across < 0 || across > 1) return draw(null);
      draw(find(across, clamp((event.clientY - area.top) / area.height, 0, 1)));
    };
    figure.addEventListener("pointermove", point);
    figure.addEventListener("pointerdown", point);
    figure.addEventListener("pointerleave", hide);
    frame.addEventListener("blur", hide);
    frame.addEventListener("keydown", (event) => {
      const far = event.shiftKey ? 10 : 1;
      const way = { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, far], ArrowDown: [0, -far] }[event.key];
      if (event.key === "Escape") hide();
      if (!way) return;
      event.preventDefault();
      draw(state === null ? find(0, 0.5) : move(state, ...way));
    });
    return { hide, index: () => state };
  };

  // --- Values over time --------------------------------------------------------------------------
  for (const course of all(".course")) {
    const data = JSON.parse(course.querySelector("script").textContent);
    const points = data.nodes[0].values[0].length;
    let [from, to] = [0, points];
    const time = (k, options) => {
      const at = data.start + k * data.step;
      if (data.zone === null) return `${at}`;
      return new Date(1000 * at).toLocaleString("en-GB", { timeZone: data.zone, ...options });
    };
    const day = { weekday: "short", day: "numeric", month: "short" };
    const clock = { hour: "2-digit", minute: "2-digit" };
    const figures = all("figure.node", course);
    const shown = figures.map((figure, n) => {
      const { values } = data.nodes[n];
      const rows = all("[data-series]", figure);
      const tell = (k) => {
        const said = rows.filter((row) => !row.closest("[hidden]")).map((row) => `${row.dataset.name}: ${number(values[row.dataset.series][k])}`);
        const when = data.zone === null ? `step ${time(k)}` : `${time(k, { ...day, ...clock })} ${data.zone}`;
        return [(k + 0.5 - from) / (to - from), [when, ...said].join("\n")];
      };
      const near = (across) => clamp(Math.floor(from + across * (to - from)), from, to - 1);
      const found = probe(figure, figure.querySelector(".frame"), figure.querySelector("b").textContent,
        near, (k, right) => clamp(k + right, from, to - 1), tell);
      figure.addEventListener("dblclick", () => {
        if (found.index() !== null) zoom(data.days.findIndex(([low, high]) => low <= found.index() && found.index() < high));
      });
      return found;
    });
    // Draw every point; the page itself draws means over several points.
    const drawn = (kind, values, top) => {
      const y = (value) => (100 - 100 * value / top).toFixed(1);
      if (kind === "columns") return values.map((v, k) => v > 0 ? `M${k} 100V${y(v)}h1V100z` : "").join("");
      const line = values.map((v, k) => `${k + 0.5} ${y(v)}`).join("L");
      return kind === "line" ? `M${line}` : `M0.5 100L${line}L${points - 0.5} 100z`;
    };
    let fine = false;
    const redraw = () => figures.forEach((figure, n) => all("path[data-series]", figure).forEach((path) => {
      const { series, kind, top } = path.dataset;
      path.setAttribute("d", drawn(kind, data.nodes[n].values[series], Number(top)));
    }));
    const axis = () => { // ticks at round hours of a day, or at round parts of a window
      const most = window.innerWidth > 600 ? 8 : 4;
      const sizes = data.zone === null ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] : [300, 900, 1800, 3600, 7200, 10800, 21600, 43200];
      const size = sizes.find((each) => (to - from) * data.step / each <= most) || (to - from) * data.step / most;
      const marks = [];
      const end = data.start + (to - 0.08 * (to - from)) * data.step; // no space for a label after this
      for (let at = Math.ceil((data.start + from * data.step) / size) * size; at <= end; at += size) {
        marks.push((at - data.start) / data.step);
      }
      return marks;
    };
    const zoomed = (number) => {
      const whole = number < 0;
      [from, to] = whole ? [0, points] : data.days[number];
      if (!fine && !whole) redraw();
      fine = fine || !whole;
      shown.forEach((each) => each.hide());
      all(".frame svg", course).forEach((svg) => svg.setAttribute("viewBox", `${from} 0 ${to - from} 100`));
      for (const each of all(".axis", course)) {
        all("span:not(.zone)", each).forEach((span) => { span.hidden = !whole; });
        all("span.part", each).forEach((span) => span.remove());
        if (!whole) each.append(...axis().map((at) => {
          const span = make("span", { className: "part", textContent: time(at, clock) });
          span.style.left = `${100 * (at - from) / (to - from)}%`;
          return span;
        }));
      }
      return number;
    };
    const select = make("select", { ariaLabel: "Show" }, make("option", { textContent: `all ${data.unit}s`, value: -1 }),
      ...data.days.map(([, , words], k) => make("option", { textContent: words, value: k })));
    const zoom = (number) => {
      select.value = zoomed(clamp(number, -1, data.days.length - 1));
      back.disabled = select.value <= -1;
      on.disabled = select.value >= data.days.length - 1;
    };
    select.onchange = () => zoom(Number(select.value));
    const back = button("‹", () => zoom(Number(select.value) - 1));
    const on = button("›", () => zoom(Number(select.value) + 1));
    back.ariaLabel = `previous ${data.unit}`;
    on.ariaLabel = `next ${data.unit}`;
    if (data.days.length > 1) {
      const said = make("span", { className: "note", textContent: `A double click on a chart shows one ${data.unit}; Escape shows all ${data.unit}s.` });
      const bar = course.querySelector(".zoomer");
      bar.append(select, back, on, button(`all ${data.unit}s`, () => zoom(-1)), said);
      bar.classList.add("zoom");
      document.addEventListener("keydown", (event) => { if (event.key === "Escape") zoom(-1); });
      zoom(-1);
    }
  }

  // --- Learning curves: show the nearest point of a run ------------------------------------------
  for (const figure of all("figure.curves")) {
    const frame = figure.querySelector(".frame");
    const [most, low, high] = frame.dataset.scale.split(" ").map(Number);
    const curves = all("path[data-name]", figure).map((path) => ({
      path, points: (path.getAttribute("d").match(/[\d.]+ [\d.]+/g) || []).map((pair) => pair.split(" ").map(Number)),
    })).filter((curve) => curve.points.length);
    const nearest = (curve, x) => curve.points.reduce((best, point, k) => Math.abs(point[0] - x) < Math.abs(curve.points[best][0] - x) ? k : best, 0);
    const find = (across, down) => {
      const shown = curves.map((curve, c) => c).filter((c) => !curves[c].path.closest("[hidden]"));
      if (!shown.length) return null;
      const found = shown.map((c) => [c, nearest(curves[c], 1000 * across)]);
      const off = ([c, k]) => Math.abs(curves[c].points[k][1] - 100 * down) + Math.abs(curves[c].points[k][0] - 1000 * across) / 10;
      return found.reduce((best, each) => off(each) < off(best) ? each : best);
    };
    const move = ([c, k], right, up) => {
      const next = clamp(c - Math.sign(up), 0, curves.length - 1);
      return [next, next === c ? clamp(k + right, 0, curves[c].points.length - 1) : nearest(curves[next], curves[c].points[k][0])];
    };
    const tell = ([c, k]) => {
      const [x, y] = curves[c].points[k];
      const value = low + (1 - y / 100) * (high - low);
      return [x / 1000, `${curves[c].path.dataset.name}\n${number(x / 1000 * most)} env steps\nreturn ${number(value, 3)}`];
    };
    if (curves.length) probe(figure, frame, "team return per episode", find, move, tell);
  }

  // --- Heat maps: forwarded requests by load and capacity ----------------------------------------
  for (const figure of all(".maps figure")) {
    const frame = figure.querySelector(".frame");
    const rows = frame.dataset.values.split(";").map((row) => row.split(","));
    const [load, room] = frame.dataset.steps.split(" ").map(Number);
    const [wide, high] = [rows[0].length, rows.length];
    const at = (x, y) => [clamp(x, 0, wide - 1), clamp(y, 0, high - 1)];
    probe(figure, frame, figure.querySelector("figcaption").textContent,
      (across, down) => at(Math.floor(across * wide), Math.floor((1 - down) * high)),
      ([x, y], right, up) => at(x + right, y + up),
      ([x, y]) => [(x + 0.5) / wide, `arrivals ${x * load}, capacity ${y * room}\n${rows[y][x] === "" ? "these rows do not contain this load" : `forwarded ${rows[y][x]}`}`]);
  }
})();
