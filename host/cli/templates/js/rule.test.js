// The rule's tests, without the host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { counts, run, sentence } from 'corver-sdk/testing.js';

import rule from './rule.js';

const paris = sentence('Paris is in Peru.', [['Paris', 'is in', 'Peru']]);

test('a fact that is not attested is penalised', () => {
  const judged = run(rule, paris, counts({ 'Paris AND Peru': 0n }));
  assert.deepEqual([judged.reward, judged.count, judged.triplet], [-0.3, 0n, 0]);
});

test('the noise floor is not attested either', () => {
  const settings = { noiseFloor: 5 };
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': 5n }), settings).reward, -0.3);
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': 6n }), settings).reward, 0.1);
});

test('nothing is said of a sentence without a countable fact', () => {
  assert.equal(run(rule, sentence('Well.', []), counts({})).reward, undefined);
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': undefined })).reward, undefined);
});

test('an unknown setting is refused', () => {
  assert.throws(() => rule.configure('{"floor": 5}'), /unknown field `floor`/);
});
