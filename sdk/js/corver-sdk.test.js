import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Batch, abstain, contentWords, isPronoun, sentenceRule, tiers, verdict, wordQuery } from './corver-sdk.js';
import first from './example/rule.js';
import { run, sentence } from './testing.js';

const film = sentence('It is so.', [
  ['He', 'directed', 'Il Seduttore'],
  ['Mario Camerini', 'directed', 'Il Seduttore'],
]);
const query = 'Mario AND Camerini AND Il AND Seduttore';

test('capitalised words hide the others', () => {
  assert.deepEqual(contentWords('theory of Albert Einstein, 1905'), ['Albert', 'Einstein']);
  assert.deepEqual(contentWords('the second battle'), ['second', 'battle']);
  assert.deepEqual(contentWords(' A OR B '), ['A OR B']);
  assert.deepEqual(contentWords('élan Éluard'), ['Éluard']);
});

test('words are known whatever their case, and white space is the published code’s', () => {
  assert.ok(['I', 'THEMSELVES', ' Anything ', '\x1c it\u3000'].every(isPronoun));
  assert.ok(!['', 'themselvess', 'i̇t', '\ufeffit', 'Paris'].some(isPronoun));
});

test('a query has each word once and at least two', () => {
  const words = ({ allOf }) => allOf.flat().join(' ');
  assert.equal(words(wordQuery({ head: 'Paris, France', relation: '', tail: 'paris Texas' })), 'Paris France Texas');
  assert.equal(wordQuery({ head: 'Paris', relation: '', tail: 'PARIS' }), undefined);
});

test('the corpus tells its size', () => {
  const score = (_, sentence, { tokens, documents }) => (tokens ? verdict(Number(tokens / documents)) : abstain('unknown'));
  const rule = sentenceRule({ name: 'size', version: '0.1.0', summary: 'the mean length of a document', score });
  assert.equal(run(rule, film, {}, {}, { tokens: 300n, documents: 4n }).reward, 75);
  assert.equal(run(rule, film, {}).note, 'unknown');
});

test('the first valid triplet decides', () => {
  const judged = run(first, film, { [query]: 50n });
  assert.deepEqual(judged, { reward: 0.1, count: 50n, triplet: 1, asked: [query] });
  assert.equal(run(first, film, { [query]: undefined }).reward, 0);
  assert.equal(run(first, sentence('Well.', []), {}).note, 'no valid triplet');
  assert.throws(() => run(first, film, {}), /does not hold "Mario AND/);
});

test('steps begin at their thresholds', () => {
  const map = tiers().read(tiers().schema.default, '');
  const rewards = [undefined, 0n, 1n, 4n, 5n, 19n, 20n, 2n ** 64n - 1n].map((count) => map.reward(count));
  assert.deepEqual(rewards, [0, -0.3, -0.1, -0.1, 0, 0, 0.1, 0.1]);
  assert.equal(map.top(), 20n);
});

test('settings that do not fit together are refused by name', () => {
  const refused = (settings, why) => assert.throws(() => first.configure(JSON.stringify(settings)), { message: why });
  refused([], 'settings: expected a JSON object, got []');
  refused({ tires: {} }, 'tires: unknown field `tires`, expected one of tiers');
  refused({ tiers: { thresholds: 5 } }, 'tiers.thresholds: expected a list, got 5');
  refused({ tiers: { thresholds: [-5, 20] } }, 'tiers.thresholds[0]: expected integer of 0 or more, got -5');
  refused({ tiers: { thresholds: [20, 5] } }, 'tiers: `thresholds` must ascend and start at 2 or above; got [20,5]');
  refused({ tiers: { thresholds: [5] } }, 'tiers: `rewards` must have 3 entries; got [-0.3,-0.1,0,0.1]');
});

test('a completion stays as long as a sentence of it asks', () => {
  const texts = (...texts) => ({ sentences: texts.map((text) => ({ text })) });
  // One asks for two counts at once, the other for one after the other.
  const asks = { both: (counts) => counts.length < 2 && 2, each: (counts) => counts.length < 2 && 1, none: () => 0 };
  const batch = new Batch([texts('both'), texts(), texts('none', 'each'), texts('both')], ({ text }, counts) => {
    const asked = asks[text](counts);
    return asked ? { tag: 'ask', val: Array(asked).fill({}) } : { tag: 'score', val: counts };
  });
  const shown = () => batch.judge().map((outcomes) => outcomes.map(({ tag, val }) => (tag === 'ask' ? val.length : val)));
  assert.deepEqual(shown(), [[2], [], [[], 1], [2]]);
  batch.reply([1n, 2n, 3n, 4n, 5n]);
  assert.deepEqual(shown(), [[[1n, 2n]], [[], 1], [[4n, 5n]]]);
  batch.reply([6n]);
  assert.deepEqual(shown(), [[[], [3n, 6n]]]);
});
