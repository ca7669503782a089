// Goldens head by head: writer and reader for problems whose truth does not fit into memory.
// store.h is the interface for whole goldens and is built on these two.
#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "golden/store.h"

namespace gdn {

class GoldenWriter {
 public:
  // Inputs are written at once; `edition` is that of the accuracy standard. Creates the directory when there is none.
  // Throws BadInput (no permission, disk full), std::invalid_argument (the case contradicts itself).
  GoldenWriter(const std::filesystem::path& dir, const Case& c, const std::string& edition);
  ~GoldenWriter();                                 // without finish() nothing stays behind
  // Truth of sequence n, value head hv of run `run`: o [T_n,V], ht [K,V] (ht is ignored where the problem has none).
  // From any thread, in any order. Prefill only; the truth of a run on a pool, or of a stage, is put whole.
  void put_head(std::size_t run, std::int64_t n, std::int64_t hv, const HeadTruth& h);
  void put_truth(std::size_t run, const Truth& t); // all of a run at once
  // Note about where the inputs come from, kept as root attribute `source`.
  void set_source(const std::string& text);
  // Hashes, renames into place, adds to the manifest. Throws std::logic_error when a head was left out.
  // hash: receives the content hash.
  std::filesystem::path finish(const OracleStats& stats, std::string* hash = nullptr);

 private:
  struct State;
  std::unique_ptr<State> s_;
};

class GoldenReader {
 public:
  // Opens and checks everything but the data: schema, identity, shapes, types, storage. Throws BadInput.
  explicit GoldenReader(const std::filesystem::path& file);
  ~GoldenReader();
  const Case& meta() const;                        // the case, runs without tensors
  const std::string& edition() const;
  const std::string& content_hash() const;         // as stored
  const OracleStats& stats() const;
  std::size_t datasets() const;
  // Whether these are the runs, and the hashes of their inputs, of the case; the inputs in the file are not read.
  bool asks(const Case& c) const;
  // Reads all data in bounded memory and compares every hash; throws BadInput naming the first wrong dataset.
  void verify_hashes();
  Run run(std::size_t index);                      // with its inputs
  HeadTruth head_truth(std::size_t run, std::int64_t n, std::int64_t hv);   // of a prefill
  Truth truth(std::size_t run);                    // with hashes verified
  Golden all();                                    // with hashes verified

 private:
  struct State;
  std::unique_ptr<State> s_;
};

// Runs the oracle over every head of a case and writes the golden; memory: the inputs and, per thread, one head.
// The same file at any thread count.
std::filesystem::path generate_golden(const std::filesystem::path& dir, const Case& c, OracleStats* stats = nullptr,
                                      const std::function<void(double)>& progress = {}, const std::string& source = {});

}  // namespace gdn
