// What `corver-host plugin build` compiles: the contract's exports around the response rule beside it.

import { exported } from './corver-glue.js';
import rule from './response.js';

const { describe, configure, judge, resume } = exported(rule, (completion) => [completion]);

export const responseGrading = {
  describe,
  configure,
  assess: (completions, size) => judge(completions, size).flat(),
  resume: (replies) => resume(replies).flat(),
};
