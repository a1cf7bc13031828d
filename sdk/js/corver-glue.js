// Between the contract's exports and a rule.

import { report } from 'corver:reward/diagnostics@0.1.0';

import { Batch, Corpus, SettingsError } from './corver-sdk.js';

/** What both kinds of component export; `subjects` says what the rule judges of a completion. */
export function exported(rule, subjects) {
  let settings;

  /** @type {Batch} */
  let batch;

  return {
    describe: () => rule.manifest,
    configure(json) {
      try {
        settings = rule.configure(json);
      } catch (error) {
        if (error instanceof SettingsError || error instanceof SyntaxError) throw error.message;
        throw reported(error);
      }
    },
    judge: (completions, size) =>
      reporting(() => {
        const judge = (subject, replies) => rule.judge(settings, subject, new Corpus(size, replies));
        batch = new Batch(completions.map(subjects), judge);
        return batch.judge();
      }),
    resume: (replies) =>
      reporting(() => {
        batch.reply(replies);
        return batch.judge();
      }),
  };
}

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
