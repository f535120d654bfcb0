// From the page's data to maps: bytes with 255 at each map's own peak, for every step, word and cell, and then for every
// word that could have been said. Maps are on one scale: 1 is what the answer's strongest word reaches.

export const bytes = (text) => {
  const raw = atob(text);
  const values = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) values[i] = raw.charCodeAt(i);
  return values;
};

const inflate = async (text) => {
  const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

export class Maps {
  static async of(panel) {
    return new Maps(panel, await inflate(panel.maps));
  }

  constructor(panel, levels) {
    this.panel = panel;
    this.levels = levels;
    this.cells = panel.grid[0] * panel.grid[1];
    this.stages = panel.stages.map((stage) => stage.key);
  }

  has(stage) {
    return this.stages.includes(stage);
  }

  // How strong a range of words is: the maximum, as words merge their tokens.
  share(stage, [start, stop]) {
    return Math.max(0, ...this.panel.shares[this.stages.indexOf(stage)].slice(start, stop));
  }

  // What could have stood in a word's place, the word's own first token before the others: [text, strength, share, peak].
  instead(word) {
    return this.panel.instead?.[word] ?? [];
  }

  // The map of one of these.
  other(word, column) {
    const before = this.panel.instead.slice(0, word).reduce((count, entries) => count + entries.length, 0);
    const scale = this.instead(word)[column][3] / 255;
    const from = (this.stages.length * this.panel.strength.length + before + column) * this.cells;
    return Float32Array.from(this.levels.subarray(from, from + this.cells), (level) => level * scale);
  }

  // Where the evidence for a word is stronger than for another in its place, and where weaker, from -1 to 1.
  difference(word, column) {
    const top = Math.max(this.instead(word)[0][2], this.instead(word)[column][2]) || 1;
    const theirs = this.other(word, column);
    return this.other(word, 0).map((value, i) => Math.min(1, Math.max(-1, (value - theirs[i]) / top)));
  }

  // The map of a range of words.
  values(stage, [start, stop]) {
    const step = this.stages.indexOf(stage);
    const peaks = this.panel.peaks[step];
    const merged = new Float32Array(this.cells);
    for (let word = start; word < stop; word++) {
      const scale = peaks[word] / 255;
      const from = (step * peaks.length + word) * this.cells;
      for (let i = 0; i < this.cells; i++) {
        const value = this.levels[from + i] * scale;
        if (value > merged[i]) merged[i] = value;
      }
    }
    return merged;
  }
}
