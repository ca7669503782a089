// The HDF5 C API behind a small RAII layer: handles that close themselves, errors as BadInput in one line, and
// readers that trust nothing a file says before it is checked. Internal to golden/; others include store.h.
//
// HDF5 never converts: every read and write has memory type == file type (HDF5 1.10 rounds 16-bit floats wrongly).
// Debian's HDF5 is not thread-safe: take `lock()` before the first handle and keep it longer than the last.
#pragma once
#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "reference/tensor.h"

namespace gdn::h5 {

std::unique_lock<std::recursive_mutex> lock();     // also silences HDF5's own error printing

class Id {
 public:
  Id() = default;
  explicit Id(hid_t id) : id_(id) {}
  Id(Id&& o) noexcept : id_(o.id_) { o.id_ = -1; }
  Id& operator=(Id&& o) noexcept;
  ~Id() { close(); }
  bool close();                                    // false: HDF5 failed to close
  hid_t get() const { return id_; }
  operator hid_t() const { return id_; }
  explicit operator bool() const { return id_ >= 0; }
 private:
  hid_t id_ = -1;
};

// Innermost message of HDF5's error stack, in parentheses with a space before, or "".
std::string last_error();

// A file that is open, with the name that error lines use.
struct File {
  Id id;
  std::string name;
  std::uint64_t bytes = 0;                         // size on disk, when opened for reading
  [[noreturn]] void fail(const std::string& what) const;                              // "FILE: what"
  [[noreturn]] void fail(const std::string& object, const std::string& what) const;   // "FILE: object: what"
};
// In the newest format that HDF5 1.10 reads, where all metadata carries checksums; no times.
File create(const std::filesystem::path& path, const std::string& shown_name);
File open_readonly(const std::filesystem::path& path);
std::uint64_t flush_and_close(File& f);            // the size of the file

// What a dataset takes in a file at most, everything included, and what a file takes without any.
std::uint64_t largest_size(const std::vector<std::int64_t>& shape, DType t);
inline constexpr std::uint64_t kFileOverhead = 128 << 10;

Id create_group(const File& f, const std::string& path);
// Committed types below /types; made at first use.
Id file_type(const File& f, DType t);

enum class Storage {
  packed,      // chunked, shuffle, deflate, fletcher32
  checked,     // chunked, fletcher32
  plain        // contiguous
};
// chunk: empty picks one. Dataset attributes: dtype.
Id create_dataset(const File& f, const std::string& path, DType t, const std::vector<std::int64_t>& shape, Storage s,
                  std::vector<hsize_t> chunk = {}, std::size_t cache_bytes = 0);
// first/count: a block of the dataset; empty: all of it. data: count elements, row-major.
void write(const File& f, const std::string& path, hid_t dataset, DType t, const void* data,
           const std::vector<hsize_t>& first = {}, const std::vector<hsize_t>& count = {});

void put_attribute(const File& f, hid_t object, const std::string& name, const std::string& text);
void put_attribute(const File& f, hid_t object, const std::string& name, std::int64_t value);
void put_attribute(const File& f, hid_t object, const std::string& name, std::uint64_t value);

// Attributes of any of the usual kinds (fixed and variable strings, integers, floats of one element). Absent: nullopt.
std::optional<std::string> text_attribute(const File& f, hid_t object, const std::string& where, const std::string& name);
std::optional<std::int64_t> int_attribute(const File& f, hid_t object, const std::string& where, const std::string& name);
std::optional<double> number_attribute(const File& f, hid_t object, const std::string& where, const std::string& name);

bool exists(const File& f, const std::string& path);
// Follows hard links only; refuses soft, external and user-defined ones.
Id open_group(const File& f, const std::string& path);
std::vector<std::string> members(const File& f, const std::string& group);   // names of datasets, sorted; groups left out

// A dataset that has been looked at and found safe to read: plain storage inside this file, known type, sizes that the
// file can hold.
struct Dataset {
  Id id, type;
  std::string path;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};
Dataset open_dataset(const File& f, const std::string& path);
void read(const File& f, const Dataset& d, void* data, const std::vector<hsize_t>& first = {}, const std::vector<hsize_t>& count = {});
Tensor read_tensor(const File& f, const Dataset& d);

}  // namespace gdn::h5
