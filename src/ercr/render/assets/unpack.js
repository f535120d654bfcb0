// From the page's data to maps: bytes with 255 at each map's own peak, for every step, word and cell.

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

  // The strongest evidence of a range of words: the maximum, as words merge their tokens.
  evidence(stage, [start, stop]) {
    return Math.max(0, ...this.panel.evidence[this.stages.indexOf(stage)].slice(start, stop));
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
