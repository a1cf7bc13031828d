// What `corver-host plugin build` compiles: the contract's exports around the sentence rule beside it.

import { exported } from './corver-glue.js';
import rule from './rule.js';

const { describe, configure, judge, resume } = exported(rule, ({ sentences }) => sentences);

export const sentenceScoring = { describe, configure, score: judge, resume };
