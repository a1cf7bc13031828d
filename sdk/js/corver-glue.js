// Connects the contract's exports with a rule.

import { report } from 'corver:reward/diagnostics@0.1.0';

import { Batch, Corpus, SettingsError } from './corver-sdk.js';

/** Returns the exports of a rule; `subjects` returns the sentences of a completion, or the completion itself. */
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
    start: (completions, info) =>
      reporting(() => {
        const run = (subject, replies) => rule.run(settings, subject, new Corpus(info, replies));
        batch = new Batch(completions.map(subjects), run);
        return toContract(batch.run());
      }),
    resume: (replies) =>
      reporting(() => {
        batch.reply(replies);
        return toContract(batch.run());
      }),
  };
}

/** Returns outcomes with the contract's u64, which are bigints. */
function toContract(completions) {
  return completions.map((outcomes) => outcomes.map(outcomeToContract));
}

function outcomeToContract({ tag, val }) {
  if (tag === 'pending') return { tag, val: val.map(requestToContract) };
  if (tag === 'done' && val.count !== undefined) return { tag, val: { ...val, count: BigInt(val.count) } };
  return { tag, val };
}

function requestToContract({ tag, val }) {
  if (tag === 'count' && val.limit !== undefined) return { tag, val: { ...val, limit: BigInt(val.limit) } };
  return { tag, val };
}

function reporting(work) {
  try {
    return work();
  } catch (error) {
    throw reported(error);
  }
}

/** Reports an error with its stack, which a trap loses. */
function reported(error) {
  report(error instanceof Error ? `${error}\n${error.stack}` : String(error));
  return error;
}
