// Which frame of a clip is shown; figures of several methods share it, so that they show the same moment.

const LONGEST = 1000; // milliseconds for which a frame is shown when a clip plays: clips of hours pass faster than they are

const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Clock {
  // The frames are decoded before anything is drawn.
  static async of(item) {
    const frames = item.frames.map((src) => Object.assign(new Image(), { src }));
    await Promise.all(frames.map((frame) => frame.decode()));
    return new Clock(item, frames);
  }

  constructor(item, frames) {
    this.item = item;
    this.frames = frames;
    this.frame = 0;
    this.playing = false;
    this.changed = []; // called when another frame is shown, or playing begins or ends
    const { times } = item;
    const longest = Math.max(...times.map((time, i) => (i ? time - times[i - 1] : 0)), 0);
    this.speed = Math.max(1, (1000 * longest) / LONGEST);
  }

  get last() {
    return this.item.times.length - 1;
  }

  get end() {
    return this.item.spans.at(-1)[1];
  }

  seek(frame) {
    const kept = Math.min(this.last, Math.max(0, frame));
    if (kept === this.frame) return;
    this.frame = kept;
    this.#tell();
  }

  // The frame that stands nearest to a moment.
  near(time) {
    const far = this.item.times.map((at) => Math.abs(at - time));
    return far.indexOf(Math.min(...far));
  }

  toggle() {
    this.playing = !this.playing;
    if (this.playing) {
      if (this.frame === this.last) this.frame = 0;
      this.#run(this.item.times[this.frame], performance.now());
    }
    this.#tell();
  }

  pause() {
    if (this.playing) this.toggle();
  }

  #run(from, began) {
    requestAnimationFrame(() => {
      if (!this.playing) return;
      const now = from + ((performance.now() - began) / 1000) * this.speed;
      const { times } = this.item;
      if (now < this.end) {
        const passed = times.findLastIndex((time) => time <= now);
        this.seek(Math.max(passed, 0));
        this.#run(from, began);
      } else if (calm.matches || times.length < 2) this.toggle(); // it plays once; otherwise again and again
      else {
        this.seek(0);
        this.#run(times[0], performance.now());
      }
    });
  }

  #tell() {
    for (const call of this.changed) call();
  }
}
