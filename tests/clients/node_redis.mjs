// Drives every command wrapper of node-redis' @redis/bloom against a server with the
// module.
//
// usage: node_redis.mjs HOST PORT, with the packages `redis` and `@redis/bloom` beside
// the working directory
//
// Every wrapper must be called, in RESP2 and in RESP3; one that a newer client brings
// and nobody calls here is reported as an error. Replies are compared as the client
// hands them to its users.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';

// The packages lie where they were installed, not beside this file.
const require = createRequire(path.join(process.cwd(), 'package.json'));
const { createClient, RESP_TYPES } = require('redis');
const wrappers = require('@redis/bloom').default;
const { version } = require('@redis/bloom/package.json');

const [host, port] = process.argv.slice(2);

// Notes which wrappers of a family are called.
function noting(family, called) {
  return new Proxy(family, {
    get(target, name) {
      const method = target[name];
      if (typeof method !== 'function') return method;
      called.add(name);
      return method.bind(target);
    },
  });
}

// The wrappers of a family, without their second names in capitals.
function names(family) {
  const wrappers = Object.keys(family);
  return wrappers.filter((name) => !/^[A-Z_]+$/.test(name));
}

const same = (got, wanted) => assert.deepEqual(plain(got), wanted);
const near = (got, wanted) => {
  assert.equal(got.length, wanted.length);
  got.forEach((one, i) => assert.ok(Math.abs(one - wanted[i]) < 1e-9 || one === wanted[i], `${got}`));
};
const refused = (text, promise) => assert.rejects(promise, (error) => error.message.includes(text));

// Replies without prototypes, for comparison.
function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (value && typeof value === 'object' && !Buffer.isBuffer(value)) return { ...value };
  return value;
}

// Copies a filter by its dump, which is bytes and not text.
async function copy(client, family, called, key, to) {
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const dump = noting(binary[family], called);
  let chunks = 0;
  for (let iterator = 0; ; chunks++) {
    const reply = await dump.scanDump(key, iterator);
    iterator = reply.iterator;
    if (iterator === 0) return chunks;
    same(await client[family].loadChunk(to, iterator, reply.chunk), 'OK');
    called.add('loadChunk');
  }
}

async function bloom(bf, client, called) {
  same(await bf.reserve('bf', 0.01, 1000), 'OK');
  same(await bf.reserve('bf:fixed', 0.01, 2, { NONSCALING: true }), 'OK');
  same(await bf.reserve('bf:grows', 0.01, 2, { EXPANSION: 4 }), 'OK');
  await refused('item exists', bf.reserve('bf', 0.01, 1000));
  same(await bf.add('bf', 'a'), true);
  same(await bf.add('bf', 'a'), false);
  same(await bf.mAdd('bf', ['a', 'b', 'c']), [false, true, true]);
  same(await bf.exists('bf', 'a'), true);
  same(await bf.exists('bf', 'x'), false);
  same(await bf.mExists('bf', ['a', 'x', 'c']), [true, false, true]);
  const options = { CAPACITY: 100, ERROR: 0.001, EXPANSION: 2 };
  same(await bf.insert('bf:new', ['a', 'b'], options), [true, true]);
  same(await bf.insert('bf:new', 'b', { NOCREATE: true }), [false]);
  await refused('not found', bf.insert('bf:none', 'a', { NOCREATE: true }));
  same(await bf.insert('bf:one', 'a', { CAPACITY: 1, NONSCALING: true }), [true]);
  same(await bf.card('bf'), 3);
  same(await bf.card('bf:none'), 0);
  const { Size, ...info } = await bf.info('bf');
  same(info, {
    Capacity: 1000,
    'Number of filters': 1,
    'Number of items inserted': 3,
    'Expansion rate': 2,
  });
  assert.ok(Size > 1000);
  same((await bf.info('bf:fixed'))['Expansion rate'], null);
  assert.ok((await copy(client, 'bf', called, 'bf', 'bf:copy')) >= 2);
  same(await bf.mExists('bf:copy', ['a', 'b', 'c', 'x']), [true, true, true, false]);
}

async function cuckoo(cf, client, called) {
  same(await cf.reserve('cf', 1000), 'OK');
  const options = { BUCKETSIZE: 4, MAXITERATIONS: 30, EXPANSION: 2 };
  same(await cf.reserve('cf:set', 1000, options), 'OK');
  await refused('item exists', cf.reserve('cf', 1000));
  same(await cf.add('cf', 'a'), true);
  same(await cf.add('cf', 'a'), true);
  same(await cf.addNX('cf', 'a'), false);
  same(await cf.addNX('cf', 'b'), true);
  same(await cf.insert('cf', ['c', 'd']), [true, true]);
  same(await cf.insert('cf:new', 'a', { CAPACITY: 100 }), [true]);
  await refused('not found', cf.insert('cf:none', 'a', { NOCREATE: true }));
  same((await cf.insertNX('cf', ['c', 'e'])).map(Number), [0, 1]);
  same(await cf.exists('cf', 'a'), true);
  same(await cf.exists('cf', 'x'), false);
  same(await cf.mExists('cf', ['a', 'x', 'e']), [true, false, true]);
  same(await cf.count('cf', 'a'), 2);
  same(await cf.del('cf', 'a'), true);
  same(await cf.del('cf', 'x'), false);
  same(await cf.count('cf', 'a'), 1);
  const info = await cf.info('cf');
  same(info['Number of items inserted'], 5);
  same(info['Number of items deleted'], 1);
  same(info['Number of filters'], 1);
  const set = await cf.info('cf:set');
  same([set['Bucket size'], set['Max iterations'], set['Expansion rate']], [4, 30, 2]);
  assert.ok(set.Size > 1000 && set['Number of buckets'] >= 250);
  assert.ok((await copy(client, 'cf', called, 'cf', 'cf:copy')) >= 2);
  same(await cf.mExists('cf:copy', ['a', 'b', 'e', 'x']), [true, true, true, false]);
}

async function countMin(cms) {
  same(await cms.initByDim('cms', 1000, 5), 'OK');
  same(await cms.initByProb('cms:prob', 0.01, 0.01), 'OK');
  await refused('key already exists', cms.initByDim('cms', 10, 2));
  const items = [{ item: 'a', incrementBy: 3 }, { item: 'b', incrementBy: 5 }];
  same(await cms.incrBy('cms', items), [3, 5]);
  same(await cms.incrBy('cms', { item: 'a', incrementBy: 2 }), [5]);
  same(await cms.query('cms', ['a', 'b', 'x']), [5, 5, 0]);
  const { width, depth, count } = await cms.info('cms');
  same([width, depth, count], [1000, 5, 10]);
  same(await cms.initByDim('cms:sum', 1000, 5), 'OK');
  same(await cms.merge('cms:sum', ['cms']), 'OK');
  same(await cms.query('cms:sum', 'a'), [5]);
  const sources = [{ name: 'cms', weight: 1 }, { name: 'cms', weight: 2 }];
  same(await cms.merge('cms:sum', sources), 'OK');
  same(await cms.query('cms:sum', ['a', 'b']), [15, 15]);
}

async function topK(topk) {
  same(await topk.reserve('topk', 2, { width: 50, depth: 5, decay: 0.9 }), 'OK');
  await refused('key already exists', topk.reserve('topk', 2));
  same(await topk.reserve('topk:plain', 10), 'OK');
  same(await topk.add('topk', ['a', 'a', 'a', 'b']), [null, null, null, null]);
  const items = [{ item: 'b', incrementBy: 4 }, { item: 'c', incrementBy: 1 }];
  same(await topk.incrBy('topk', items), [null, null]);
  same(await topk.incrBy('topk', { item: 'd', incrementBy: 100 }), ['a']);
  same(await topk.query('topk', ['d', 'a', 'b']), [true, false, true]);
  same(await topk.count('topk', ['d', 'b']), [100, 5]);
  same(await topk.list('topk'), ['d', 'b']);
  same(await topk.listWithCount('topk'), [{ item: 'd', count: 100 }, { item: 'b', count: 5 }]);
  same(await topk.info('topk'), { k: 2, width: 50, depth: 5, decay: 0.9 });
}

async function tDigest(td) {
  same(await td.create('td'), 'OK');
  same(await td.create('td:fine', { COMPRESSION: 500 }), 'OK');
  await refused('key already exists', td.create('td'));
  same(await td.add('td', [1, 2, 3, 4, 5]), 'OK');
  same(await td.add('td:fine', [10, 20]), 'OK');
  same(await td.min('td'), 1);
  same(await td.max('td'), 5);
  near(await td.quantile('td', [0, 0.5, 1]), [1, 3, 5]);
  near(await td.cdf('td', [0, 3, 9]), [0, 0.5, 1]);
  same(await td.rank('td', [0, 1, 5, 9]), [-1, 0, 4, 5]);
  same(await td.revRank('td', [0, 1, 5, 9]), [5, 4, 0, -1]);
  near(await td.byRank('td', [0, 4, 9]), [1, 5, Infinity]);
  near(await td.byRevRank('td', [0, 4, 9]), [5, 1, -Infinity]);
  near([await td.trimmedMean('td', 0.1, 0.9)], [3]);
  const info = await td.info('td');
  same(info.Compression, 100);
  same(info['Merged weight'] + info['Unmerged weight'], 5);
  assert.ok(info['Memory usage'] > 0);
  same(await td.merge('td:sum', ['td', 'td:fine']), 'OK');
  same(await td.max('td:sum'), 20);
  same(await td.merge('td:sum', 'td', { COMPRESSION: 300, OVERRIDE: true }), 'OK');
  same(await td.max('td:sum'), 5);
  same((await td.info('td:sum')).Compression, 300);
  same(await td.reset('td'), 'OK');
  assert.ok(Number.isNaN(await td.min('td')), 'an empty digest has no minimum');
}

const drivers = { bf: bloom, cf: cuckoo, cms: countMin, topK, tDigest };

let [passed, failed] = [0, 0];
for (const RESP of [2, 3]) {
  const client = createClient({ RESP, url: `redis://${host}:${port}` });
  await client.connect();
  const [, major] = /redis_version:(\d+)/.exec(await client.info('server'));
  if (RESP === 3 && Number(major) < 7) {
    console.log('skipped RESP3: modules cannot speak it before Redis 7.0');
    await client.close();
    continue;
  }
  await client.flushAll();
  const modules = (await client.moduleList()).map(({ name, ver }) => `${name} ${ver}`);
  assert.ok(modules.includes('bf 81000'), `${modules}`);
  for (const [family, methods] of Object.entries(wrappers)) {
    const title = `@redis/bloom ${version} RESP${RESP} ${family}`;
    const called = new Set();
    try {
      assert.ok(drivers[family], 'this family is not driven');
      await drivers[family](noting(client[family], called), client, called);
      const missed = names(methods).filter((name) => !called.has(name));
      assert.deepEqual(missed, [], 'wrappers not driven');
      passed++;
      console.log(`ok ${title}: ${called.size} wrappers`);
    } catch (error) {
      failed++;
      console.log(`FAILED ${title}: ${error.stack}`);
    }
  }
  await client.flushAll();
  await client.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
