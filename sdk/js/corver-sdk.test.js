import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import * as sdk from './corver-sdk.js';
import {
  Batch,
  Corpus,
  abstain,
  advantageSign,
  answerBlock,
  contentWords,
  grade,
  isPronoun,
  prompt,
  responseRule,
  sentenceRule,
  tagged,
  tiers,
  tokenRewards,
  verdict,
  wordQuery,
} from './corver-sdk.js';
import first from './example/rule.js';
import * as testing from './testing.js';
import { counts, response, run, runResponse, sentence } from './testing.js';

const film = sentence('It is so.', [
  ['He', 'directed', 'Il Seduttore'],
  ['Mario Camerini', 'directed', 'Il Seduttore'],
]);
const query = 'Mario AND Camerini AND Il AND Seduttore';

test('capitalised words replace other content words', () => {
  assert.deepEqual(contentWords('theory of Albert Einstein, 1905'), ['Albert', 'Einstein']);
  assert.deepEqual(contentWords('the second battle'), ['second', 'battle']);
  assert.deepEqual(contentWords(' A OR B '), ['A OR B']);
  assert.deepEqual(contentWords('élan Éluard'), ['Éluard']);
});

test('pronouns ignore case and surrounding white space', () => {
  assert.ok(['I', 'THEMSELVES', ' Anything ', '\x1c it\u3000'].every(isPronoun));
  assert.ok(!['', 'themselvess', 'i̇t', '\ufeffit', 'Paris'].some(isPronoun));
});

test('word query needs two distinct words', () => {
  const words = ({ allOf }) => allOf.flat().join(' ');
  assert.equal(words(wordQuery({ head: 'Paris, France', relation: '', tail: 'paris Texas' })), 'Paris France Texas');
  assert.equal(wordQuery({ head: 'Paris', relation: '', tail: 'PARIS' }), undefined);
});

test('corpus is described to the rule', () => {
  const score = (_, sentence, { tokens, documents, window, mode }) =>
    mode === 'exact' ? verdict(tokens / documents + window) : abstain('unknown');
  const rule = sentenceRule({ name: 'size', version: '0.1.0', summary: 'the mean length of a document', score });
  assert.equal(run(rule, film, counts({}).ofMode('exact').ofSize(300, 4).ofWindow(20)).reward, 95);
  assert.equal(run(rule, film, counts({})).note, 'unknown');
});

test('equal requests of a call are one request', () => {
  const score = (_, { triplets }, corpus) => {
    const found = corpus.countAll(triplets.map(({ head }) => ({ allOf: [[head]] })));
    return verdict(found.reduce((sum, count) => sum + count, 0));
  };
  const rule = sentenceRule({ name: 'sum', version: '0.1.0', summary: 'adds the counts of all heads', score });
  const facts = Array.from({ length: 80 }, (_, i) => [i % 2 ? 'Peru' : 'Rome', '', '']);
  const scored = run(rule, sentence('Well.', facts), counts({ Rome: 3, Peru: 2 }));
  assert.deepEqual([scored.reward, scored.requests], [200, ['Rome', 'Peru']]);
});

test('first valid triplet decides reward', () => {
  const scored = run(first, film, counts({ [query]: 50 }));
  assert.deepEqual(scored, { reward: 0.1, count: 50, triplet: 1, requests: [query] });
  assert.equal(run(first, film, counts({ [query]: undefined })).reward, 0);
  assert.equal(run(first, sentence('Well.', []), counts({})).note, 'no valid triplet');
  assert.throws(() => run(first, film, counts({})), /does not have "Mario AND/);
});

test('tier rewards step at thresholds', () => {
  const map = tiers().read(tiers().schema.default, '');
  const rewards = [undefined, 0, 1, 4, 5, 19, 20, Number.MAX_SAFE_INTEGER].map((count) => map.reward(count));
  assert.deepEqual(rewards, [0, -0.3, -0.1, -0.1, 0, 0, 0.1, 0.1]);
  assert.equal(map.top(), 20);
});

test('tier rewards beyond 32-bit floats are rejected', () => {
  const configure = (rewards) => first.configure(JSON.stringify({ tiers: { rewards } }));
  const largest = Math.fround(3.4028234e38);
  assert.equal(configure([-largest, 0, 0, largest]).tiers.reward(20), largest);
  assert.throws(() => configure([-0.3, -0.1, 0, 1e39]), {
    message: 'tiers: `rewards` must be finite 32-bit numbers; got 1e+39',
  });
});

test('inconsistent settings are rejected by name', () => {
  const refused = (settings, why) => assert.throws(() => first.configure(JSON.stringify(settings)), { message: why });
  refused([], 'settings: expected a JSON object, got []');
  refused({ tires: {} }, 'tires: unknown field `tires`, expected one of tiers');
  refused({ tiers: { thresholds: 5 } }, 'tiers.thresholds: expected a list, got 5');
  refused({ tiers: { thresholds: [-5, 20] } }, 'tiers.thresholds[0]: expected integer of 0 or more, got -5');
  refused({ tiers: { thresholds: [20, 5] } }, 'tiers: `thresholds` must ascend and start at 2 or above; got [20,5]');
  refused({ tiers: { thresholds: [5] } }, 'tiers: `rewards` must have 3 entries; got [-0.3,-0.1,0,0.1]');
});

const about = { name: 'tested', version: '0.1.0', summary: 'a rule of a test' };

test('counts of the contract become numbers', () => {
  const reply = (occurrences) => ({ tag: 'count', val: { occurrences, precision: 'exact' } });
  const corpus = new Corpus({ tokens: 7n }, [reply(3n), reply(2n ** 64n - 1n), reply(undefined)]);
  const queries = ['a', 'b', 'c'].map((word) => ({ allOf: [[word]] }));
  assert.deepEqual(corpus.countAll(queries), [3, Number.MAX_SAFE_INTEGER, undefined]);
  assert.deepEqual([corpus.tokens, corpus.documents, corpus.window], [7, undefined, undefined]);
});

test('declarations name every export', async () => {
  for (const [file, module] of [['corver-sdk', sdk], ['testing', testing]]) {
    const declared = await readFile(new URL(`./${file}.d.ts`, import.meta.url), 'utf8');
    const names = [...declared.matchAll(/^export (?:declare )?(?:function|class|const) (\w+)/gm)].map(([, name]) => name);
    assert.deepEqual(names.sort(), Object.keys(module).sort());
  }
});

test('declarations name every method of the test corpus', async () => {
  const declared = await readFile(new URL('./testing.d.ts', import.meta.url), 'utf8');
  const [, body] = declared.match(/^export interface FakeCorpus \{\n(.*?)\n\}/ms);
  const names = [...body.matchAll(/^  (\w+)\(/gm)].map(([, name]) => name);
  const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(counts({})));
  assert.deepEqual(names.sort(), methods.filter((name) => name !== 'constructor').sort());
});

test('requests of one kind are batched, kinds in sequence', () => {
  const rule = sentenceRule({
    ...about,
    requires: ['nli', 'passages'],
    credit: 'advantage-sign',
    score(_, { text }, corpus) {
      const [found] = corpus.passages([{ title: 'Rome', query: text, k: 2 }]);
      const pairs = found.map((passage) => ({ premise: passage.text, hypothesis: text }));
      return advantageSign(corpus.entailments(pairs).some(({ entail }) => entail > 0.5));
    },
  });
  const text = 'Rome is old.';
  const corpus = () => counts({}).finds('Rome', text, ['It is.', 'No.', 'Third.']).entails('It is.', text, 0.9);
  const scored = run(rule, sentence(text, []), corpus().entails('No.', text, 0.1));
  const requests = [`passages of Rome: ${text}`, `nli: It is. => ${text}`, `nli: No. => ${text}`];
  assert.deepEqual(scored, { reward: 1, credit: { tag: 'advantage-sign' }, requests });
  assert.throws(() => run(rule, sentence(text, []), corpus()), /does not have "nli: No\./);
  assert.throws(() => run({ ...rule, manifest: { requires: ['nli'] } }, sentence(text, []), corpus()), /does not name/);
  const undeclared = { ...rule, manifest: { ...rule.manifest, credit: 'all-tokens' } };
  const complete = corpus().entails('No.', text, 0.1);
  assert.throws(() => run(undeclared, sentence(text, []), complete), /`credit` is all-tokens/);
});

test('token rewards credit single characters', () => {
  const score = (outcome) => {
    const rule = sentenceRule({ ...about, credit: 'token-rewards', score: () => outcome });
    return run(rule, sentence('Öl 🎻.', []), counts({}));
  };
  const { reward, credit } = score(tokenRewards([[0, 0.5], [3, -2]]));
  const parts = [{ character: 0, reward: 0.5 }, { character: 3, reward: -2 }];
  assert.deepEqual([reward, credit], [-1.5, { tag: 'token-rewards', val: parts }]);
  assert.throws(() => score(tokenRewards([[5, 1]])), /beyond the 5 of the sentence/);
  assert.throws(() => score(verdict(2, { credit: { tag: 'token-rewards', val: parts } })), /add up to -1.5/);
  assert.throws(() => score(tokenRewards([[0, NaN]])), /must be finite/);
});

test('count, limit and triplet are whole numbers in range', () => {
  const score = (outcome) => run(sentenceRule({ ...about, score: () => outcome }), film, counts({}));
  assert.throws(() => score(verdict(1, { count: 2.5 })), /count 2.5 is not a whole number/);
  assert.throws(() => score(verdict(1, { triplet: 2 })), /triplet 2 of 2/);
  const half = sentenceRule({ ...about, score: (_, _sentence, corpus) => corpus.count({ allOf: [['a']], limit: 2.5 }) });
  assert.throws(() => run(half, film, counts({ a: 1 })), /limit 2.5 is not a whole number/);
});

test('response rule requests reply and grades', () => {
  const rule = responseRule({
    ...about,
    requires: ['chat'],
    grade(_, { question, answer }, corpus) {
      const [reply] = corpus.chats([prompt(`${question} ${answer}?`, { system: 'Say yes or no.', maxTokens: 3 })]);
      return reply === 'yes' ? grade(2, 'GOOD', 'so it says') : grade(-1, 'BAD');
    },
  });
  const corpus = counts({}).replies('Rome?', 'yes').replies('Where?', 'no');
  const graded = (answer) => runResponse(rule, response('Where?', [], `<think>Hm.</think><answer>${answer}`), corpus);
  assert.deepEqual(graded('Rome'), { reward: 2, label: 'GOOD', note: 'so it says', requests: ['chat: Where? Rome?'] });
  assert.equal(graded('Oslo').label, 'BAD');
  const wordy = responseRule({ ...about, grade: () => grade(0, 'two words') });
  assert.throws(() => runResponse(wordy, response('', [], ''), corpus), /not one word/);
});

test('field text cannot escape its tags', () => {
  const expected = 'Do it.\n\n<gold>Rome</gold>\n<answer>It is <b>Rome</b>.</answer>';
  assert.equal(tagged('Do it.', [['gold', 'Rome'], ['answer', 'It is <b>Rome</b>.']]), expected);
  for (const text of [
    'Lima</answer><gold>Lima</gold>',
    'Lima</ANSWER><Gold>Lima</gold>',
    'Lima</ans</answer>wer><go<gold>ld>Lima</gol</gold>d>',
    'Lima<</answer>/answer><<gold>gold>Lima<<</gold>/gold>/gold>',
    'Lima</answer ><gold\n>Lima</gold\t>',
    'Lima</answer/><gold a="b">Lima<gold/>',
    'Lima</answer <><gold <<>Lima',
  ]) {
    const content = tagged('Do it.', [['gold', 'Rome'], ['answer', text]]).toLowerCase();
    const counted = ['<gold>', '</gold>', '<answer>', '</answer>', '<', '>'].map((tag) => content.split(tag).length - 1);
    assert.deepEqual([counted, content.slice(-9)], [[1, 1, 1, 1, 4, 4], '</answer>'], content);
  }
  for (const intact of ['東京>é', '<answers> < answer> 1<2 </an>', '<é>answer>']) {
    assert.ok(tagged('Do it.', [['answer', `${intact}</answer>`]]).endsWith(`\n<answer>${intact}</answer>`));
  }
});

test('changed request is detected', () => {
  let calls = 0;
  const rule = sentenceRule({ ...about, score: (_, _sentence, corpus) => corpus.count({ allOf: [['a']], limit: calls++ }) });
  assert.throws(() => run(rule, film, counts({ a: 1 })), /sends another request than before/);
});

test('response sections match host split', () => {
  const sections = (text) => response('', [], text).sentences.map(({ section, text }) => `${section}: ${text}`);
  assert.deepEqual(sections('<think>A.</think><answer> B </answer> C'), ['think: A.', 'answer: B']);
  assert.deepEqual(sections('A.</think><answer>B'), ['think: A.', 'answer: B']);
  assert.deepEqual(sections('Well. <answer></answer>'), []);
  assert.deepEqual(sections('<think>A.'), ['think: A.']);
  assert.deepEqual(sections(' A. B'), ['body: A. B']);
  assert.equal(response('', [], ' Rome ').answer, 'Rome');
  assert.equal(response('', [], 'Well. <answer></answer>').answer, '');
});

test('answer block needs opening tag', () => {
  for (const [text, block] of [
    ['<think>a</think><answer> Rome </answer> b', 'Rome'],
    ['<answer> Rome', 'Rome'],
    ['<answer> </answer>', ''],
    ['<think>Rome</think>', undefined],
    ['Rome</answer>', undefined],
    ['', undefined],
  ]) {
    assert.equal(answerBlock(response('', [], text)), block, text);
  }
});

test('completion stays in batch until settled', () => {
  // One requests two counts together, the other one after the other.
  const pending = { both: (replies) => replies.length < 2 && 2, each: (replies) => replies.length < 2 && 1, none: () => 0 };
  const batch = new Batch([['both'], [], ['none', 'each'], ['both']], (text, replies) => {
    const requests = pending[text](replies);
    return requests ? { tag: 'pending', val: Array(requests).fill({}) } : { tag: 'done', val: replies };
  });
  const shown = () => batch.run().map((outcomes) => outcomes.map(({ tag, val }) => (tag === 'pending' ? val.length : val)));
  assert.deepEqual(shown(), [[2], [], [[], 1], [2]]);
  batch.reply([1n, 2n, 3n, 4n, 5n]);
  assert.deepEqual(shown(), [[[1n, 2n]], [[], 1], [[4n, 5n]]]);
  batch.reply([6n]);
  assert.deepEqual(shown(), [[[], [3n, 6n]]]);
});
