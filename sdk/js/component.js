// What `corver-host plugin build` compiles: the contract's exports around the rule beside it.

import { report } from 'corver:reward/diagnostics@0.3.0';

import rule from './rule.js';
import { SettingsError } from './corver-sdk.js';

let settings;

/** The sentences to judge next, each with its counts so far and the number of answers that it waits for. */
let open;

export const sentenceScoring = {
  describe: () => rule.manifest,
  configure(json) {
    try {
      settings = rule.configure(json);
    } catch (error) {
      if (error instanceof SettingsError || error instanceof SyntaxError) throw error.message;
      throw told(error);
    }
  },
  score(batch) {
    open = batch.map((sentence) => ({ sentence, counts: [], asked: 0 }));
    return judgeOpen();
  },
  resume(counts) {
    let answered = 0;
    for (const one of open) one.counts.push(...counts.slice(answered, (answered += one.asked)));
    return judgeOpen();
  },
};

/** One outcome per open sentence; the completions in which one asks stay open. */
function judgeOpen() {
  try {
    const outcomes = open.map(({ sentence, counts }) => rule.judge(settings, sentence, counts));
    const asking = new Set();
    outcomes.forEach(({ tag, val }, i) => {
      open[i].asked = tag === 'ask' ? val.length : 0;
      if (tag === 'ask') asking.add(open[i].sentence.completion);
    });
    open = open.filter(({ sentence }) => asking.has(sentence.completion));
    return outcomes;
  } catch (error) {
    throw told(error);
  }
}

/** A trap has no words: they go out this way. */
function told(error) {
  report(error instanceof Error ? `${error}\n${error.stack}` : String(error));
  return error;
}
