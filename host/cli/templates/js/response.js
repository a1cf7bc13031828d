/** {{type}}: an answer judge that accepts an answer if it equals a gold. */

import { answerBlock, grade, number, responseRule } from 'corver-sdk';

export default responseRule({
  name: '{{name}}',
  version: '0.1.0',
  summary: '{{summary}}', // the host shows it
  settings: {
    right: number(2, 'Reward of a right answer.'),
    wrong: number(-1, 'Reward of a wrong or missing answer.'),
  },

  grade({ right, wrong }, completion, corpus) {
    // `completion.answer` is the whole text if there is no answer block.
    const answer = (answerBlock(completion) ?? '').toLowerCase();
    if (answer === '') return grade(wrong, 'NOT_ATTEMPTED');
    const isRight = completion.golds.some((gold) => gold.trim().toLowerCase() === answer);
    return isRight ? grade(right, 'GOOD') : grade(wrong, 'BAD');
  },
});
