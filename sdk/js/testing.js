/** Runs a rule without the host, against counts given by hand. */

import { Corpus } from './corver-sdk.js';

const ROUNDS = 4; // what the host allows by default

/**
 * A sentence of a think block with these triplets.
 * @param {string} text
 * @param {[head: string, relation: string, tail: string][]} triplets
 * @returns {import('./corver-sdk.js').Sentence}
 */
export function sentence(text, triplets) {
  const facts = triplets.map(([head, relation, tail]) => ({ head, relation, tail }));
  return { text, section: 'think', triplets: facts };
}

/**
 * Calls the rule as the host would, until it judges. The corpus has this size and answers exactly these queries, each written
 * as it prints: `'Paris AND Peru'`; `undefined` where it cannot answer.
 * @param {ReturnType<import('./corver-sdk.js').sentenceRule>} rule
 * @param {import('./corver-sdk.js').Sentence} sentence
 * @param {Record<string, bigint | undefined>} counts
 * @param {object} [settings]
 * @param {import('./corver-sdk.js').CorpusSize} [size]
 * @returns {{reward?: number, count?: bigint, triplet?: number, note?: string, asked: string[]}}
 *   What the host would record; `reward` is `undefined` where the rule abstained.
 */
export function run(rule, sentence, counts, settings = {}, size = {}) {
  const configured = rule.configure(JSON.stringify(settings));
  const asked = [];
  for (let round = 0; round <= ROUNDS; round++) {
    const known = asked.map((query) => ({ occurrences: counts[query], exact: true }));
    const { tag, val } = rule.judge(configured, sentence, new Corpus(size, known));
    if (tag === 'abstain') return { note: val, asked };
    if (tag === 'score') {
      if (!Number.isFinite(val.reward)) throw new Error(`the reward is ${val.reward}: it must be finite`);
      return { ...val, asked };
    }
    for (const query of val.map(printed)) {
      if (!Object.hasOwn(counts, query)) throw new Error(`the corpus does not hold ${JSON.stringify(query)}`);
      asked.push(query);
    }
  }
  throw new Error(`the rule still asks after ${ROUNDS} rounds of answers`);
}

const printed = ({ val: { allOf } }) => allOf.map((words) => words.join(' OR ')).join(' AND ');
