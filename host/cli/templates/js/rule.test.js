// The rule's tests, without the host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { counts, run, sentence } from 'corver-sdk/testing.js';

import rule from './rule.js';

const paris = sentence('Paris is in Peru.', [['Paris', 'is in', 'Peru']]);

test('unattested triplet is penalised', () => {
  const scored = run(rule, paris, counts({ 'Paris AND Peru': 0 }));
  assert.deepEqual([scored.reward, scored.count, scored.triplet], [-0.3, 0, 0]);
});

test('count at noise floor is penalised', () => {
  const settings = { noiseFloor: 5 };
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': 5 }), settings).reward, -0.3);
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': 6 }), settings).reward, 0.1);
});

test('abstains without countable triplet', () => {
  assert.equal(run(rule, sentence('Well.', []), counts({})).reward, undefined);
  assert.equal(run(rule, paris, counts({ 'Paris AND Peru': undefined })).reward, undefined);
});

test('rejects unknown setting', () => {
  assert.throws(() => rule.configure('{"floor": 5}'), /unknown field `floor`/);
});
