/* Pointers, wheel and keys on a canvas, as moves of what it shows.
 *
 * Owns telling a click from a drag, a pinch, a box and a brush; positions go out as
 * shares of the plot, 0 to 1 from the left and from the bottom.  Must not know what is
 * drawn.
 *
 * MOVES: area() -> {left, top, width, height} of the plot in the canvas; pan(shareX,
 * shareY), begin() and end() around one; zoom(factor, atX), stretch(factor, atY);
 * brush(from, to, done), box(from, to), click(at), hover(at or null, pointer); keys: a
 * table of functions by key, and moved(), which is called after one. */
"use strict";

const memlabGestures = (() => {
  const SLACK = 3;
  const WHEEL_OCTAVE = 250;

  function attach(canvas, moves) {
    const pointers = new Map();
    let drag = null;
    let pinch = 0;

    function at(pointer) {
      const area = moves.area();
      const box = canvas.getBoundingClientRect();
      const x = (pointer.clientX - box.left - area.left) / area.width;
      const y = 1 - (pointer.clientY - box.top - area.top) / area.height;
      return { x, y, inside: x >= 0 && x < 1 && y > 0 && y <= 1 };
    }

    function within({ x, y }) {
      return { x: Math.max(0, Math.min(1, x)), y: Math.max(0, Math.min(1, y)) };
    }

    function spread() {
      const [a, b] = [...pointers.values()];
      return { apart: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY),
               x: (at(a).x + at(b).x) / 2 };
    }

    canvas.addEventListener("wheel", (wheel) => {
      wheel.preventDefault();
      const place = within(at(wheel));
      const area = moves.area();
      const sideways = Math.abs(wheel.deltaX) > Math.abs(wheel.deltaY);
      if (sideways && !wheel.shiftKey) {
        moves.begin();
        moves.pan(wheel.deltaX / area.width, 0);
        moves.end();
        return;
      }
      const delta = wheel.deltaY || wheel.deltaX;
      const factor = Math.exp(Math.max(-1, Math.min(1, delta / WHEEL_OCTAVE)));
      if (wheel.shiftKey) {
        moves.stretch(factor, place.y);
      }
      else {
        moves.zoom(factor, place.x);
      }
    }, { passive: false });

    canvas.addEventListener("pointerdown", (pointer) => {
      if (pointer.button > 0) {
        return;
      }
      canvas.setPointerCapture(pointer.pointerId);
      pointers.set(pointer.pointerId, pointer);
      if (pointers.size === 2) {
        drag = null;
        pinch = spread().apart;
        return;
      }
      const box = pointer.ctrlKey || pointer.metaKey;
      drag = { x: pointer.clientX, y: pointer.clientY, from: within(at(pointer)),
               kind: pointer.shiftKey ? "brush" : box ? "box" : "pan", moved: false };
    });

    canvas.addEventListener("pointermove", (pointer) => {
      if (pointers.has(pointer.pointerId)) {
        pointers.set(pointer.pointerId, pointer);
      }
      if (pointers.size === 2) {
        const { apart, x } = spread();
        moves.zoom(pinch / Math.max(1, apart), x);
        pinch = apart;
      }
      else if (drag === null) {
        moves.hover(at(pointer), pointer);
      }
      else {
        dragged(pointer);
      }
    });

    function dragged(pointer) {
      const dx = pointer.clientX - drag.x;
      const dy = pointer.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < SLACK) {
        return;
      }
      if (!drag.moved) {
        drag.moved = true;
        canvas.classList.add("dragging");
        moves.hover(null, pointer);
        moves.begin();
      }
      const area = moves.area();
      if (drag.kind === "pan") {
        moves.pan(-dx / area.width, dy / area.height);
      }
      else {
        moves.brush(drag.from, within(at(pointer)), false);
      }
    }

    function released(pointer, cancelled) {
      pointers.delete(pointer.pointerId);
      const ended = drag;
      drag = null;
      canvas.classList.remove("dragging");
      if (ended === null) {
        return;
      }
      if (!ended.moved) {
        if (!cancelled && at(pointer).inside) {
          moves.click(at(pointer), pointer);
        }
        return;
      }
      moves.end();
      if (ended.kind === "brush" && !cancelled) {
        moves.brush(ended.from, within(at(pointer)), true);
      }
      else if (ended.kind === "box") {
        moves.box(ended.from, cancelled ? ended.from : within(at(pointer)));
      }
    }

    canvas.addEventListener("pointerup", (pointer) => released(pointer, false));
    canvas.addEventListener("pointercancel", (pointer) => released(pointer, true));
    canvas.addEventListener("pointerleave", (pointer) => {
      if (drag === null) {
        moves.hover(null, pointer);
      }
    });
    canvas.addEventListener("dblclick", () => moves.keys[0]());
    canvas.addEventListener("keydown", (key) => {
      if (Object.hasOwn(moves.keys, key.key) && !key.ctrlKey && !key.metaKey
          && !key.altKey) {
        key.preventDefault();
        key.stopPropagation();
        moves.keys[key.key]();
        moves.moved();
      }
    });
  }

  return { attach };
})();
