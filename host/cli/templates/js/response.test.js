// The rule's tests, without the host.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { counts, response, runResponse } from 'corver-sdk/testing.js';

import rule from './response.js';

const graded = (answer) => {
  const text = `<think>I read it.</think><answer>${answer}</answer>`;
  return runResponse(rule, response('Where?', ['Rome', 'Roma'], text), counts({}));
};

test('only exact gold answer is good', () => {
  const labels = ['roma', 'Rome, Italy', ''].map((answer) => graded(answer).label);
  assert.deepEqual(labels, ['GOOD', 'BAD', 'NOT_ATTEMPTED']);
});

test('text without answer block is not attempted', () => {
  for (const text of ['Rome', '<think>Rome</think>', '<think>Rome']) {
    const { label } = runResponse(rule, response('Where?', ['Rome'], text), counts({}));
    assert.equal(label, 'NOT_ATTEMPTED', text);
  }
});

test('rejects unknown setting', () => {
  assert.throws(() => rule.configure('{"rihgt": 5}'), /unknown field `rihgt`/);
});
