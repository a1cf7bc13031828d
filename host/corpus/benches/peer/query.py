"""The official engine, driven line by line: python query.py WIDTH INDEX QUERIES

WIDTH is u8, u16 or u32. QUERIES is JSONL: {"ids": [...]} or {"cnf": [[[...]]], "max_clause_freq": n, "max_diff_tokens": n}.
Every line on standard input is a command, every answer one line of JSON:

  answers                       per query [count, approx, ptrs_by_shard]; the last is null for an n-gram
  pass FROM TO                  for each of the queries FROM..TO the nanoseconds of one call
  rate THREADS SECONDS FROM TO  as many threads ask the queries FROM..TO in turn: [calls per second, calls per second of
                                processor time]
  batch THREADS FROM TO         as many threads ask each of the queries FROM..TO once: {"nanoseconds": n, "counts": [...]}
  cold FROM TO                  for each of the queries FROM..TO, asked of an index that was just opened and whose files the
                                system was told to forget, {"pages": n, "nanoseconds": n}: pages of the files that the query
                                brought into memory
  pages                         how many pages of the files are in memory

The engine runs at its best: the class that the C++ extension exports, called directly, and no prefetching, which the
wheel's Python wrapper turns on and which costs more than it saves.
"""

import ctypes
import json
import mmap
import os
import sys
import threading
import time

from infini_gram import cpp_engine

FILES = ("tokenized.0", "table.0", "offset.0", "prefixes.0")
SEPARATOR = {"u8": 0xFF, "u16": 0xFFFF, "u32": 0xFFFFFFFF}


def open_engine(width, path):
    engine_class = {"u8": cpp_engine.Engine_U8, "u16": cpp_engine.Engine_U16, "u32": cpp_engine.Engine_U32}[width]
    # directories, eos token, vocabulary, version, load to RAM, three prefetch depths, then what other queries use
    return engine_class([path], 0, SEPARATOR[width], 4, False, 0, 0, 0, set(), 512, False, {})


def calls(engine, queries):
    """Per query a function and its keyword arguments, so that the timed loop does nothing but call."""
    for query in queries:
        yield (engine.count_cnf, query) if "cnf" in query else (engine.count, {"input_ids": query["ids"]})


def answers(engine, queries):
    for query in queries:
        if "cnf" in query:
            count, found = engine.count_cnf(**query), engine.find_cnf(**query)
            assert (count.count, count.approx) == (found.cnt, found.approx), query
            yield [count.count, count.approx, found.ptrs_by_shard]
        else:
            count = engine.count(input_ids=query["ids"])
            yield [count.count, count.approx, None]


def one_pass(prepared):
    clock = time.perf_counter_ns
    times = []
    for function, arguments in prepared:
        start = clock()
        function(**arguments)
        times.append(clock() - start)
    return times


def rate(prepared, threads, seconds):
    done = [0] * threads
    begin = threading.Barrier(threads + 1)

    def work(number):
        begin.wait()
        end = time.perf_counter() + seconds
        asked = 0
        while time.perf_counter() < end:
            for function, arguments in prepared:
                function(**arguments)
            asked += len(prepared)
        done[number] = asked

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    begin.wait()
    start, processor_start = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.join()
    return [sum(done) / (time.perf_counter() - start), sum(done) / (time.process_time() - processor_start)]


def batch(prepared, threads):
    counts = [None] * len(prepared)
    left = iter(enumerate(prepared))
    lock = threading.Lock()

    def work():
        while True:
            with lock:
                number, (function, arguments) = next(left, (None, (None, None)))
            if function is None:
                return
            counts[number] = function(**arguments).count

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"nanoseconds": time.perf_counter_ns() - start, "counts": counts}


def pages_in_memory(index):
    """The system's own account (mincore), through a mapping that nobody reads."""
    libc = ctypes.CDLL(None, use_errno=True)
    size_t, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    libc.mincore.argtypes = [pointer, size_t, ctypes.c_char_p]
    libc.munmap.argtypes = [pointer, size_t]
    pages = 0
    for name in FILES:
        with open(os.path.join(index, name), "rb") as file:
            length = os.fstat(file.fileno()).st_size
            start = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
            held = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
            if libc.mincore(start, length, held) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            libc.munmap(start, length)
            pages += sum(byte & 1 for byte in held.raw)
    return pages


def cold(width, index, queries):
    """The caller holds no engine: the system keeps mapped pages."""
    for query in queries:
        for name in FILES:
            with open(os.path.join(index, name), "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        engine = open_engine(width, index)
        [(function, arguments)] = calls(engine, [query])
        pages = pages_in_memory(index)
        start = time.perf_counter_ns()
        function(**arguments)
        nanoseconds = time.perf_counter_ns() - start
        yield {"pages": pages_in_memory(index) - pages, "nanoseconds": nanoseconds}
        del engine, function


def main():
    width, index, path = sys.argv[1:]
    with open(path, encoding="utf-8") as lines:
        queries = [json.loads(line) for line in lines]
    engine = open_engine(width, index)
    prepared = list(calls(engine, queries))
    for line in sys.stdin:
        command, *arguments = line.split()
        if command == "answers":
            answer = list(answers(engine, queries))
        elif command == "pass":
            start, end = arguments
            answer = one_pass(prepared[int(start) : int(end)])
        elif command == "rate":
            threads, seconds, start, end = arguments
            answer = rate(prepared[int(start) : int(end)], int(threads), float(seconds))
        elif command == "batch":
            threads, start, end = arguments
            answer = batch(prepared[int(start) : int(end)], int(threads))
        elif command == "cold":
            start, end = arguments
            engine = prepared = None
            answer = list(cold(width, index, queries[int(start) : int(end)]))
        elif command == "pages":
            answer = pages_in_memory(index)
        else:
            sys.exit(f"unknown command {command}")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
