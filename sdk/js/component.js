// What `corver-host plugin build` compiles: the contract's exports around the rule beside it.

import { report } from 'corver:reward/diagnostics@0.5.0';

import rule from './rule.js';
import { Batch, SettingsError, crossing, sentencesOf } from './corver-sdk.js';

let settings;

/** @type {Batch} */
let batch;

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
  score: (given) =>
    telling(() => {
      batch = new Batch(sentencesOf(given), (sentence, counts) => rule.judge(settings, sentence, counts));
      return batch.judge().map(crossing);
    }),
  resume: (counts) =>
    telling(() => {
      batch.answer(counts);
      return batch.judge().map(crossing);
    }),
};

function telling(work) {
  try {
    return work();
  } catch (error) {
    throw told(error);
  }
}

/** A trap has no words: they go out this way. */
function told(error) {
  report(error instanceof Error ? `${error}\n${error.stack}` : String(error));
  return error;
}
