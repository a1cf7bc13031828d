// The module that `corver-host plugin build` compiles: the contract's exports for the sentence rule in `rule.js`.

import { exported } from './corver-glue.js';
import rule from './rule.js';

const { describe, configure, start, resume } = exported(rule, ({ sentences }) => sentences);

export const sentenceScoring = { describe, configure, score: start, resume };
