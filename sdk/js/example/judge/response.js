/** A judge in JavaScript that asks a chat model. */

import { grade, prompt, responseRule, tagged } from 'corver-sdk';

export default responseRule({
  name: 'judge-js',
  version: '0.1.0',
  summary: 'asks a chat model whether the answer is right, in JavaScript',
  asks: ['chat'],

  grade(_, { title = '', evidence, question, answer }, corpus) {
    if (answer === '') return grade(-1, 'NOT_ATTEMPTED');
    const texts = [['title', title], ['text', evidence.join(' ')], ['question', question], ['answer', answer]];
    const asked = tagged('Is the answer right?', texts);
    const [reply] = corpus.chats([prompt(asked, { system: 'Reply yes or no.', maxTokens: 4 })]);
    return reply === 'yes' ? grade(2, 'GOOD') : grade(-1, 'BAD', `it says ${reply}`);
  },
});
