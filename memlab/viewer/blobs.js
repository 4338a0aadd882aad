/* The numbered blobs of a page: how their bytes are come by, and the numbers in them.
 *
 * Owns the three places that blobs come from (elements of this document, a server's
 * byte ranges, a parser run here) and columns of varints.  Must not know what a
 * column means. The pure part runs under node too. */
"use strict";

const memlabBlobs = (() => {
  const LOW = 2 ** 28;

  /* ---- where from ---- */

  function waitForParser(id) {
    return new Promise((resolve) => {
      /* The parser may hand over a long text in pieces: it is whole when something
       * follows the element. */
      const found = () => {
        const element = document.getElementById(id);
        const whole = element !== null
          && (element.nextSibling !== null || document.readyState !== "loading");
        return whole ? element : null;
      };
      const done = (element) => {
        watcher.disconnect();
        document.removeEventListener("DOMContentLoaded", look);
        resolve(element);
      };
      const look = () => {
        const element = found();
        if (element !== null || document.readyState !== "loading") {
          done(element);
        }
      };
      const watcher = new MutationObserver(look);
      watcher.observe(document, { childList: true, subtree: true });
      document.addEventListener("DOMContentLoaded", look);
      look();
    });
  }

  function fromBase64(text) {
    if (Uint8Array.fromBase64 !== undefined) {
      return Uint8Array.fromBase64(text);
    }
    const binary = atob(text);
    const bytes = new Uint8Array(binary.length);
    for (let i = 0; i < binary.length; i++) {
      bytes[i] = binary.charCodeAt(i);
    }
    return bytes;
  }

  async function inflate(bytes) {
    const stream = new Blob([bytes]).stream()
      .pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Blobs of this document: base64 of raw deflate in the elements b0, b1, ... */
  function embedded() {
    return async (n) => {
      const element = await waitForParser(`b${n}`);
      if (element === null) {
        throw new Error("This page's file is cut short: save or download it again.");
      }
      return inflate(fromBase64(element.textContent));
    };
  }

  /* Blobs of `memlab view --serve`: blob N is bytes offsets[N] to offsets[N + 1] - 1 of
   * what "blobs" beside the page answers. */
  function served(offsets) {
    return async (n) => {
      const size = offsets[n + 1] - offsets[n];
      if (size === 0) {
        return new Uint8Array(0);
      }
      const range = `bytes=${offsets[n]}-${offsets[n + 1] - 1}`;
      let answer = null;
      try {
        answer = await fetch("blobs", { headers: { Range: range } });
      }
      catch {
        throw new Error("memlab view --serve does not answer: is it still running?");
      }
      const bytes = new Uint8Array(await answer.arrayBuffer());
      if (answer.status !== 206 || bytes.length !== size) {
        throw new Error("memlab view --serve answered with something else "
          + `(status ${answer.status}): open the address that it printed again.`);
      }
      return bytes;
    };
  }

  /* The readBlob of a page that memlab wrote. */
  function ofPage(about) {
    return about.serve ? served(about.serve.offsets) : embedded();
  }

  /* ---- columns ---- */

  function reader(bytes) {
    return { bytes, at: 0 };
  }

  /* Fills OUT with varints.  Bytes past the end read as zeros; `ended` tells. */
  function unsigned(input, out) {
    const { bytes } = input;
    let { at } = input;
    for (let i = 0; i < out.length; i++) {
      let byte = bytes[at++];
      if (byte < 128) {
        out[i] = byte;
        continue;
      }
      let low = byte & 127;
      byte = bytes[at++];
      low |= (byte & 127) << 7;
      if (byte < 128) {
        out[i] = low;
        continue;
      }
      byte = bytes[at++];
      low |= (byte & 127) << 14;
      if (byte < 128) {
        out[i] = low;
        continue;
      }
      byte = bytes[at++];
      low |= (byte & 127) << 21;
      if (byte < 128) {
        out[i] = low;
        continue;
      }
      let high = 0;
      let weight = 1;
      do {
        byte = bytes[at++];
        high += (byte & 127) * weight;
        weight *= 128;
      } while (byte >= 128);
      out[i] = low + high * LOW;
    }
    input.at = at;
    return out;
  }

  /* Fills OUT with the running sums of FROM and zigzag varints. */
  function deltas(input, out, from = 0) {
    const { bytes } = input;
    let { at } = input;
    let sum = from;
    for (let i = 0; i < out.length; i++) {
      let byte = bytes[at++];
      let low = byte & 127;
      let shift = 7;
      while (byte >= 128 && shift < 28) {
        byte = bytes[at++];
        low |= (byte & 127) << shift;
        shift += 7;
      }
      if (byte >= 128) {
        let high = 0;
        let weight = 1;
        do {
          byte = bytes[at++];
          high += (byte & 127) * weight;
          weight *= 128;
        } while (byte >= 128);
        const size = (low >>> 1) + high * (LOW / 2);
        sum += (low & 1) === 1 ? -size - 1 : size;
      }
      else {
        sum += (low >>> 1) ^ -(low & 1);
      }
      out[i] = sum;
    }
    input.at = at;
    return out;
  }

  /* Fills OUT with BASE plus zigzag varints, each of its own. */
  function relative(input, out, base) {
    const { bytes } = input;
    for (let i = 0; i < out.length; i++) {
      let byte = bytes[input.at++];
      const less = (byte & 1) === 1;
      let size = (byte & 127) >>> 1;
      for (let weight = 64; byte >= 128; weight *= 128) {
        byte = bytes[input.at++];
        size += (byte & 127) * weight;
      }
      out[i] = less ? base[i] - size - 1 : base[i] + size;
    }
    return out;
  }

  const one = new Float64Array(1);

  function number(input) {
    return unsigned(input, one)[0];
  }

  /* Throws unless all bytes were read, and no more: else the columns are not what the
   * reader takes them for. */
  function ended(input) {
    if (input.at !== input.bytes.length) {
      throw new Error("The page's data is damaged: write the page again.");
    }
  }

  return { ofPage, embedded, served, reader, unsigned, deltas, relative, number, ended };
})();
