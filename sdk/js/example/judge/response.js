/** An answer judge in JavaScript that uses a chat model. */

import { answerBlock, grade, prompt, responseRule, tagged } from 'corver-sdk';

export default responseRule({
  name: 'judge-js',
  version: '0.1.0',
  summary: 'rewards an answer that a chat model accepts, in JavaScript',
  requires: ['chat'],

  grade(_, completion, corpus) {
    const answer = answerBlock(completion);
    if (!answer) return grade(-1, 'NOT_ATTEMPTED');
    const { title = '', evidence, question } = completion;
    const texts = [['title', title], ['text', evidence.join(' ')], ['question', question], ['answer', answer]];
    const content = tagged('Is the answer right?', texts);
    const [reply] = corpus.chats([prompt(content, { system: 'Reply yes or no.', maxTokens: 4 })]);
    return reply === 'yes' ? grade(2, 'GOOD') : grade(-1, 'BAD', `it says ${reply}`);
  },
});
