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
    // the grids of all pictures and clips, and where their cells begin
    this.pieces = panel.pieces ?? [panel];
    let from = 0;
    this.starts = this.pieces.map(({ grid, slices = 1 }) => {
      from += slices * grid[0] * grid[1];
      return from - slices * grid[0] * grid[1];
    });
  }

  // The map of one picture, or of one slice of a clip, in a map of all of them.
  part(values, piece, slice = 0) {
    const { grid } = this.pieces[piece];
    const from = this.starts[piece] + slice * grid[0] * grid[1];
    return values.subarray(from, from + grid[0] * grid[1]);
  }

  // The share of the evidence in each slice of each piece: of one word's final map as the library counts it.
  spread(values, range, stage) {
    const known = range && stage === "result" && range[1] - range[0] === 1 ? this.panel.where?.[range[0]] : null;
    if (known) {
      const shares = known.values();
      return this.pieces.map(({ slices = 1 }) => Array.from({ length: slices }, () => shares.next().value));
    }
    const means = this.pieces.map(({ slices = 1, area = 1 }, piece) =>
      Array.from({ length: slices }, (_, i) => this.part(values, piece, i).reduce((a, b) => a + b, 0) / area),
    );
    const total = means.flat().reduce((a, b) => a + b, 0) || 1;
    return means.map((slices) => slices.map((mean) => mean / total));
  }

  // Which piece, slice and cell of it has the highest value.
  highest(values) {
    const at = values.indexOf(values.reduce((a, b) => Math.max(a, b), 0));
    const piece = this.starts.findLastIndex((start) => start <= at);
    const { grid } = this.pieces[piece];
    const size = grid[0] * grid[1];
    const slice = Math.floor((at - this.starts[piece]) / size);
    return { piece, slice, cell: at - this.starts[piece] - slice * size };
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
