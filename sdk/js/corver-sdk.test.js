import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Batch, contentWords, crossing, isPronoun, sentencesOf, tiers, wordQuery } from './corver-sdk.js';
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

test('a query crosses as one text', () => {
  const asks = { tag: 'ask', val: [{ allOf: [['red\nfox', 'the\tden'], ['Rome']], enough: 20n }] };
  assert.deepEqual(crossing(asks), { tag: 'ask', val: [{ allOf: 'red fox\tthe den\nRome', enough: 20n }] });
  assert.deepEqual(crossing({ tag: 'abstain' }), { tag: 'abstain' });
});

test('sentences are cut out of one text', () => {
  const place = { completion: 4, section: 'think' };
  const batch = {
    sentences: [{ ...place, index: 0, numTriplets: 1 }, { ...place, index: 1, numTriplets: 0 }],
    text: '🎻 in Größe.🎻Größe\ufeff',
    lengths: new Uint32Array([16, 4, 0, 7, 3]),
  };
  assert.deepEqual(sentencesOf(batch), [
    { ...place, index: 0, text: '🎻 in Größe.', triplets: [{ head: '🎻', relation: '', tail: 'Größe' }] },
    { ...place, index: 1, text: '\ufeff', triplets: [] },
  ]);
  const texts = (text, ...lengths) => {
    const sentences = lengths.map(() => ({ numTriplets: 0 }));
    return sentencesOf({ sentences, text, lengths: new Uint32Array(lengths) }).map(({ text }) => text);
  };
  assert.deepEqual(texts('\ufeffRome', 7), ['\ufeffRome']);
  assert.deepEqual(texts('Rome', 7), ['\ufeffRome'], 'the engine drops it');
  assert.throws(() => texts('Rome', 3), /the contract: 3 bytes of text, not 4/);
  assert.throws(() => texts('🎻', 2, 2), TypeError);
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
  refused([], 'settings: a JSON object is expected');
  refused({ tires: {} }, 'tires: unknown field `tires`, expected one of tiers');
  refused({ tiers: { thresholds: 5 } }, 'tiers.thresholds: a list is expected');
  refused({ tiers: { thresholds: [-5, 20] } }, 'tiers.thresholds[0]: -5 is no integer of 0 or more');
  refused({ tiers: { thresholds: [20, 5] } }, 'tiers: `thresholds` must ascend and start at 2 or above; got [20,5]');
  refused({ tiers: { thresholds: [5] } }, 'tiers: `rewards` must have 3 entries; got [-0.3,-0.1,0,0.1]');
});

test('a completion stays as long as a sentence of it asks', () => {
  const place = (completion, index) => ({ completion, index });
  const sentences = [place(0, 0), place(1, 0), place(1, 1), place(0, 0)];
  // Sentence 1 of completion 1 asks twice, the last sentence once, for two counts.
  const batch = new Batch(sentences, ({ completion, index }, counts) => {
    const asks = index === 1 ? counts.length < 2 && 1 : completion === 0 && counts.length === 0 && 2;
    return asks ? { tag: 'ask', val: Array(asks).fill({}) } : { tag: 'score', val: counts.map((c) => c.occurrences) };
  });
  const shown = () => batch.judge().map(({ tag, val }) => (tag === 'ask' ? val.length : val));
  const counts = (...occurrences) => occurrences.map((occurrences) => ({ occurrences, exact: true }));
  assert.deepEqual(shown(), [2, [], 1, 2]);
  batch.answer(counts(1n, 2n, 3n, 4n, 5n));
  assert.deepEqual(shown(), [[1n, 2n], [], 1, [4n, 5n]]);
  batch.answer(counts(6n));
  assert.deepEqual(shown(), [[], [3n, 6n]]);
});
