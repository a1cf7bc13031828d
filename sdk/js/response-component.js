// The module that `corver-host plugin build` compiles: the contract's exports for the response rule in `response.js`.

import { exported } from './corver-glue.js';
import rule from './response.js';

const { describe, configure, start, resume } = exported(rule, (completion) => [completion]);

export const responseGrading = {
  describe,
  configure,
  grade: (completions, info) => start(completions, info).flat(),
  resume: (replies) => resume(replies).flat(),
};
