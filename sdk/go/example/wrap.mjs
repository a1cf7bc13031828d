// Makes a component of Go's module: adds the contract, and puts no_wasi.wat in the place of WASI.
import { readFileSync, writeFileSync } from 'node:fs';
import { componentEmbed, componentNew, parse } from '@bytecodealliance/jco';

const [wit, module, component] = process.argv.slice(2);
const text = (path) => readFileSync(path, 'utf8');
const embedded = await componentEmbed({ binary: readFileSync(module), witSource: text(wit), world: 'sentence-rule' });
const adapter = await parse(text('no_wasi.wat'));
writeFileSync(component, await componentNew(embedded, [['wasi_snapshot_preview1', adapter]]));
