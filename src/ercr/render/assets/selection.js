// Which words are shown: those under the pointer or the focus, else those that were kept. Ranges are [start, stop).

export class Selection {
  constructor(prompts, changed) {
    this.prompts = prompts; // the words before this index belong to the prompt
    this.changed = changed;
    this.keeps = () => {}; // told which words are kept
    this.preview = null;
    this.kept = null;
    this.anchor = null; // where a phrase starts from
    this.extending = false; // whether every click makes a phrase
  }

  get shown() {
    return this.preview ?? this.kept;
  }

  look(word) {
    this.preview = word === null ? null : [word, word + 1];
    this.changed();
  }

  keep(range) {
    this.kept = range;
    this.anchor = range ? range[0] : null;
    this.preview = null;
    this.keeps(range);
    this.changed();
  }

  // Keep a word, or let it go if it was kept.
  toggle(word) {
    const same = this.kept && this.kept[0] === word && this.kept[1] === word + 1;
    this.keep(same ? null : [word, word + 1]);
  }

  // Keep the words from the anchor to this one; a phrase lies in the prompt or in the answer.
  extend(word, from = word) {
    const fits = this.anchor !== null && this.anchor < this.prompts === word < this.prompts;
    if (!fits) this.anchor = from;
    this.kept = [Math.min(this.anchor, word), Math.max(this.anchor, word) + 1];
    this.preview = null;
    this.keeps(this.kept);
    this.changed();
  }
}
