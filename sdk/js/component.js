// What `corver-host plugin build` compiles: the contract's exports around the rule beside it.

import { report } from 'corver:reward/diagnostics@0.2.0';

import rule from './rule.js';
import { SettingsError } from './corver-sdk.js';

let settings;

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
    try {
      return batch.map((sentence) => rule.judge(settings, sentence));
    } catch (error) {
      throw told(error);
    }
  },
};

/** A trap has no words: they go out this way. */
function told(error) {
  report(error instanceof Error ? `${error}\n${error.stack}` : String(error));
  return error;
}
