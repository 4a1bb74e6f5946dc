// Reads an OpenAPI document on stdin and says whether it is valid, by the published schema of its version.
import { readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';

const validator = new Validator();
const result = await validator.validate(JSON.parse(readFileSync(0, 'utf8')));
if (!result.valid) {
  console.log(JSON.stringify(result.errors, null, 1));
  process.exit(1);
}
validator.resolveRefs(); // throws where a reference leads nowhere
console.log(`valid ${validator.version}`);
