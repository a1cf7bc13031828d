// What `corver-host plugin build` compiles: the contract's exports around the rule beside it.

import { report } from 'corver:reward/diagnostics@0.1.0';

import rule from './rule.js';
import { Batch, Corpus, SettingsError } from './corver-sdk.js';

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
      throw reported(error);
    }
  },
  score: (completions, size) =>
    reporting(() => {
      batch = new Batch(completions, (sentence, counts) => rule.judge(settings, sentence, new Corpus(size, counts)));
      return batch.judge();
    }),
  resume: (replies) =>
    reporting(() => {
      batch.reply(replies.map(({ val }) => val));
      return batch.judge();
    }),
};

function reporting(work) {
  try {
    return work();
  } catch (error) {
    throw reported(error);
  }
}

/** A trap loses an error and its stack: both are reported first. */
function reported(error) {
  report(error instanceof Error ? `${error}\n${error.stack}` : String(error));
  return error;
}
