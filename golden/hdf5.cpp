// HDF5 behind RAII; see hdf5.h.
#include "golden/hdf5.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "golden/atomic_file.h"
#include "golden/store.h"

namespace gdn::h5 {
namespace {

constexpr std::uint64_t kMaxElements = 1ull << 40;
constexpr hsize_t kChunkBytes = 1 << 20;
constexpr std::size_t kMaxText = 16 << 20;
constexpr std::uint64_t kDeflateRatio = 1100;      // deflate cannot do better than 1032 to 1

Id custom_float(int exponent, int mantissa, std::size_t bias) {
  Id t(H5Tcopy(H5T_IEEE_F32LE));
  const std::size_t e = static_cast<std::size_t>(exponent), m = static_cast<std::size_t>(mantissa);
  H5Tset_fields(t, e + m, m, e, 0, m);
  H5Tset_offset(t, 0);
  H5Tset_precision(t, 1 + e + m);
  H5Tset_size(t, (1 + e + m) / 8);
  H5Tset_ebias(t, bias);
  return t;
}

// e4m3 has no infinities, which HDF5's float types cannot say: its codes are stored as uint8.
Id make_type(DType t) {
  switch (t) {
    case DType::f64: return Id(H5Tcopy(H5T_IEEE_F64LE));
    case DType::f32: return Id(H5Tcopy(H5T_IEEE_F32LE));
    case DType::f16: return custom_float(5, 10, 15);
    case DType::bf16: return custom_float(8, 7, 127);
    case DType::e4m3: return Id(H5Tcopy(H5T_STD_U8LE));
    case DType::e5m2: return custom_float(5, 2, 15);
    case DType::i32: return Id(H5Tcopy(H5T_STD_I32LE));
    case DType::i64: return Id(H5Tcopy(H5T_STD_I64LE));
  }
  return {};
}

bool committed(DType t) { return t == DType::bf16 || t == DType::f16 || t == DType::e5m2; }

std::uint64_t bytes_of(const std::vector<std::int64_t>& shape, DType t) {
  std::uint64_t n = size_of(t);
  for (std::int64_t d : shape) n *= static_cast<std::uint64_t>(d);
  return n;
}

std::vector<hsize_t> to_hsize(const std::vector<std::int64_t>& shape) { return {shape.begin(), shape.end()}; }

Id file_access() {
  Id p(H5Pcreate(H5P_FILE_ACCESS));
  H5Pset_libver_bounds(p, H5F_LIBVER_V110, H5F_LIBVER_V110);
#if H5_VERSION_GE(1, 12, 1) || (H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 10 && H5_VERS_RELEASE >= 7)
  H5Pset_file_locking(p, false, true);             // files are renamed into place whole; some file systems cannot lock
#endif
  return p;
}

Id space_of(const std::vector<hsize_t>& dims) {
  return Id(dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr));
}

// Biggest chunk of at most kChunkBytes that holds whole rows of the last axes.
std::vector<hsize_t> pick_chunk(const std::vector<hsize_t>& dims, std::size_t element) {
  std::vector<hsize_t> chunk = dims;
  hsize_t bytes = element;
  for (hsize_t d : dims) bytes *= d;
  for (std::size_t i = 0; i < dims.size() && bytes > kChunkBytes; ++i) {
    const hsize_t rest = bytes / chunk[i];
    chunk[i] = std::max<hsize_t>(1, kChunkBytes / rest);
    bytes = rest * chunk[i];
  }
  return chunk;
}

struct Selection { Id memory, file; };
Selection select(hid_t dataset, const std::vector<hsize_t>& first, const std::vector<hsize_t>& count) {
  Selection s;
  s.file = Id(H5Dget_space(dataset));
  H5Sselect_hyperslab(s.file, H5S_SELECT_SET, first.data(), nullptr, count.data(), nullptr);
  s.memory = space_of(count);
  return s;
}

void put_scalar(const File& f, hid_t object, const std::string& name, hid_t type, const void* value) {
  const Id space(H5Screate(H5S_SCALAR));
  const Id a(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT));
  if (!a || H5Awrite(a, type, value) < 0) f.fail("attribute " + name, "cannot be written" + last_error());
}

struct Attribute { Id id, type; };
std::optional<Attribute> open_attribute(const File& f, hid_t object, const std::string& where, const std::string& name) {
  const htri_t there = H5Aexists(object, name.c_str());
  if (there < 0) f.fail(where, "damaged attributes" + last_error());
  if (!there) return std::nullopt;
  Attribute a{Id(H5Aopen(object, name.c_str(), H5P_DEFAULT)), {}};
  if (!a.id) f.fail(where, "attribute " + name + " cannot be read" + last_error());
  a.type = Id(H5Aget_type(a.id));
  const Id space(H5Aget_space(a.id));
  if (!a.type || !space) f.fail(where, "attribute " + name + " cannot be read" + last_error());
  if (H5Sget_simple_extent_npoints(space) != 1) f.fail(where, "attribute " + name + " must hold one value");
  return a;
}

// The object at the end of a chain of hard links.
Id open_object(const File& f, const std::string& path) {
  std::size_t at = 0;
  Id here(H5Gopen2(f.id, "/", H5P_DEFAULT));
  if (!here) f.fail("group /", "damaged" + last_error());
  while (at < path.size()) {
    while (at < path.size() && path[at] == '/') ++at;
    const std::size_t end = std::min(path.find('/', at), path.size());
    if (end == at) break;
    const std::string name = path.substr(at, end - at), so_far = path.substr(0, end);
    at = end;
    const htri_t there = H5Lexists(here, name.c_str(), H5P_DEFAULT);
    if (there < 0) f.fail(so_far, "damaged group" + last_error());
    if (!there) f.fail(so_far, "missing");
    H5L_info_t info;
    if (H5Lget_info(here, name.c_str(), &info, H5P_DEFAULT) < 0) f.fail(so_far, "damaged link" + last_error());
    if (info.type != H5L_TYPE_HARD) f.fail(so_far, "is a soft or external link; only objects of this file are read");
    Id next(H5Oopen(here, name.c_str(), H5P_DEFAULT));
    if (!next) f.fail(so_far, "cannot be opened" + last_error());
    here = std::move(next);
    if (at < path.size() && H5Iget_type(here) != H5I_GROUP) f.fail(so_far, "is not a group");
  }
  return here;
}

herr_t collect(hid_t, const char* name, const H5L_info_t* info, void* out) {
  auto& names = *static_cast<std::vector<std::string>*>(out);
  if (info->type == H5L_TYPE_HARD) names.emplace_back(name);
  return names.size() > 4096 ? -1 : 0;
}

}  // namespace

std::unique_lock<std::recursive_mutex> lock() {
  static std::recursive_mutex mutex;
  std::unique_lock<std::recursive_mutex> held(mutex);
  static const bool once = [] {
    H5PLset_loading_state(0);                      // no file may make HDF5 load a filter plugin
    return true;
  }();
  (void)once;
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  return held;
}

Id& Id::operator=(Id&& o) noexcept {
  if (this != &o) {
    close();
    id_ = o.id_;
    o.id_ = -1;
  }
  return *this;
}

bool Id::close() {
  if (id_ < 0) return true;
  const bool good = H5Idec_ref(id_) >= 0;
  id_ = -1;
  return good;
}

std::string last_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD,
           [](unsigned n, const H5E_error2_t* e, void* out) -> herr_t {
             if (n == 0 && e->desc) *static_cast<std::string*>(out) = e->desc;
             return 0;
           },
           &text);
  H5Eclear2(H5E_DEFAULT);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  return text.empty() ? "" : " (" + text.substr(0, 200) + ")";
}

void File::fail(const std::string& what) const { throw BadInput(name + ": " + what); }
void File::fail(const std::string& object, const std::string& what) const { throw BadInput(name + ": " + object + ": " + what); }

File create(const std::filesystem::path& path, const std::string& shown_name) {
  const Id access = file_access(), creation(H5Pcreate(H5P_FILE_CREATE));
  H5Pset_obj_track_times(creation, false);
  H5Pset_attr_phase_change(creation, 64, 32);
  File f{Id(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation, access)), shown_name, 0};
  if (!f.id) f.fail("cannot write" + last_error());
  return f;
}

File open_readonly(const std::filesystem::path& path) {
  File f{{}, path.string(), 0};
  struct stat st{};
  // O_NONBLOCK: a FIFO must not block; it is refused below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw BadInput(errno_line(path, "read"));
  const bool known = ::fstat(fd, &st) == 0;
  ::close(fd);
  if (!known) throw BadInput(errno_line(path, "read"));
  if (S_ISDIR(st.st_mode)) f.fail("is a directory, not an HDF5 file");
  if (!S_ISREG(st.st_mode)) f.fail("is not a regular file");
  if (st.st_size == 0) f.fail("is empty, not an HDF5 file");
  f.bytes = static_cast<std::uint64_t>(st.st_size);
  const htri_t is = H5Fis_hdf5(path.c_str());
  if (is <= 0) f.fail("is not an HDF5 file");
  const Id access = file_access();
  f.id = Id(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access));
  if (!f.id) f.fail("damaged or truncated HDF5 file" + last_error());
  return f;
}

std::uint64_t flush_and_close(File& f) {
  hsize_t size = 0;
  const bool flushed = H5Fflush(f.id, H5F_SCOPE_LOCAL) >= 0 && H5Fget_filesize(f.id, &size) >= 0;
  const std::string why = flushed ? "" : last_error();
  if (!f.id.close() || !flushed) f.fail("cannot write" + (why.empty() ? last_error() : why));
  return size;
}

// Deflate adds at most 0.1% and some bytes; 128 bytes a chunk cover checksum and index; 16 KiB header, attributes, group.
std::uint64_t largest_size(const std::vector<std::int64_t>& shape, DType t) {
  const std::uint64_t bytes = bytes_of(shape, t);
  return bytes + bytes / 512 + 16384;
}

// Every group on the way by itself: those that HDF5 makes as "intermediate" carry times.
Id create_group(const File& f, const std::string& path) {
  const Id creation(H5Pcreate(H5P_GROUP_CREATE));
  H5Pset_obj_track_times(creation, false);
  H5Pset_attr_phase_change(creation, 64, 32);
  Id g;
  for (std::size_t at = 0; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    const bool there = H5Lexists(f.id, part.c_str(), H5P_DEFAULT) > 0;
    g = Id(there ? H5Gopen2(f.id, part.c_str(), H5P_DEFAULT) : H5Gcreate2(f.id, part.c_str(), H5P_DEFAULT, creation, H5P_DEFAULT));
    if (!g) f.fail("group " + part, "cannot be written" + last_error());
  }
  return g;
}

Id file_type(const File& f, DType t) {
  Id type = make_type(t);
  if (!committed(t)) return type;
  const std::string path = std::string("/types/") + name(t);
  create_group(f, "/types");
  if (H5Lexists(f.id, path.c_str(), H5P_DEFAULT) > 0) return Id(H5Topen2(f.id, path.c_str(), H5P_DEFAULT));
  const Id creation(H5Pcreate(H5P_DATATYPE_CREATE));
  H5Pset_obj_track_times(creation, false);
  if (H5Tcommit2(f.id, path.c_str(), type, H5P_DEFAULT, creation, H5P_DEFAULT) < 0) f.fail("type " + path, "cannot be written" + last_error());
  return type;
}

Id create_dataset(const File& f, const std::string& path, DType t, const std::vector<std::int64_t>& shape, Storage s,
                  std::vector<hsize_t> chunk, std::size_t cache_bytes) {
  const std::vector<hsize_t> dims = to_hsize(shape);
  const Id type = file_type(f, t), space = space_of(dims);
  if (const auto slash = path.rfind('/'); slash != 0 && slash != std::string::npos) create_group(f, path.substr(0, slash));
  const Id creation(H5Pcreate(H5P_DATASET_CREATE)), access(H5Pcreate(H5P_DATASET_ACCESS));
  H5Pset_obj_track_times(creation, false);
  H5Pset_attr_phase_change(creation, 64, 32);
  if (s != Storage::plain && !dims.empty() && bytes_of(shape, t) > 0) {   // HDF5 has no chunks of nothing
    if (chunk.empty()) chunk = pick_chunk(dims, size_of(t));
    H5Pset_chunk(creation, static_cast<int>(chunk.size()), chunk.data());
    if (s == Storage::packed) {
      H5Pset_shuffle(creation);
      H5Pset_deflate(creation, 1);                 // random digits: more effort makes them no smaller
    }
    H5Pset_fletcher32(creation);
    if (cache_bytes) H5Pset_chunk_cache(access, 8191, cache_bytes, 1.0);
  }
  Id d(H5Dcreate2(f.id, path.c_str(), type, space, H5P_DEFAULT, creation, access));
  if (!d) f.fail("dataset " + path, "cannot be written" + last_error());
  put_attribute(f, d, "dtype", gdn::name(t));
  return d;
}

void write(const File& f, const std::string& path, hid_t dataset, DType t, const void* data, const std::vector<hsize_t>& first,
           const std::vector<hsize_t>& count) {
  const Id type = make_type(t);
  const Selection s = count.empty() ? Selection{} : select(dataset, first, count);   // outlives last_error
  if (H5Dwrite(dataset, type, s.memory ? s.memory.get() : H5S_ALL, s.file ? s.file.get() : H5S_ALL, H5P_DEFAULT, data) < 0)
    f.fail("dataset " + path, "cannot be written" + last_error());
}

void put_attribute(const File& f, hid_t object, const std::string& name, const std::string& text) {
  const Id type(H5Tcopy(H5T_C_S1));
  H5Tset_size(type, std::max<std::size_t>(1, text.size()));
  H5Tset_strpad(type, H5T_STR_NULLPAD);
  H5Tset_cset(type, H5T_CSET_UTF8);
  put_scalar(f, object, name, type, text.empty() ? "" : text.data());
}
void put_attribute(const File& f, hid_t object, const std::string& name, std::int64_t value) {
  put_scalar(f, object, name, H5T_STD_I64LE, &value);
}
void put_attribute(const File& f, hid_t object, const std::string& name, std::uint64_t value) {
  put_scalar(f, object, name, H5T_STD_U64LE, &value);
}

std::optional<std::string> text_attribute(const File& f, hid_t object, const std::string& where, const std::string& name) {
  const auto a = open_attribute(f, object, where, name);
  if (!a) return std::nullopt;
  if (H5Tget_class(a->type) != H5T_STRING) f.fail(where, "attribute " + name + " is not text");
  std::string text;
  if (H5Tis_variable_str(a->type) > 0) {
    char* value = nullptr;
    if (H5Aread(a->id, a->type, &value) < 0 || !value) f.fail(where, "attribute " + name + " cannot be read" + last_error());
    text.assign(value, strnlen(value, kMaxText));
    H5free_memory(value);
  } else {
    const std::size_t n = H5Tget_size(a->type);
    if (n > kMaxText || n > f.bytes) f.fail(where, "attribute " + name + " is too long");
    text.resize(n);
    if (H5Aread(a->id, a->type, text.data()) < 0) f.fail(where, "attribute " + name + " cannot be read" + last_error());
    text.resize(strnlen(text.data(), n));
  }
  return text;
}

std::optional<std::int64_t> int_attribute(const File& f, hid_t object, const std::string& where, const std::string& name) {
  const auto a = open_attribute(f, object, where, name);
  if (!a) return std::nullopt;
  if (H5Tget_class(a->type) != H5T_INTEGER) f.fail(where, "attribute " + name + " is not an integer");
  // Integers of eight bytes have the bits of int64; converting a narrower one is exact.
  const bool is_unsigned = H5Tget_sign(a->type) == H5T_SGN_NONE;
  std::int64_t value = 0;
  if (H5Aread(a->id, is_unsigned ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64, &value) < 0) f.fail(where, "attribute " + name + " cannot be read" + last_error());
  return value;
}

std::optional<double> number_attribute(const File& f, hid_t object, const std::string& where, const std::string& name) {
  const auto a = open_attribute(f, object, where, name);
  if (!a) return std::nullopt;
  const H5T_class_t c = H5Tget_class(a->type);
  if (c != H5T_FLOAT && c != H5T_INTEGER) f.fail(where, "attribute " + name + " is not a number");
  double value = 0;                                // from float or double: exact
  if (H5Aread(a->id, H5T_NATIVE_DOUBLE, &value) < 0) f.fail(where, "attribute " + name + " cannot be read" + last_error());
  return value;
}

bool exists(const File& f, const std::string& path) {
  std::size_t at = 0;
  while (at != std::string::npos) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (part == "/" || part.empty()) continue;
    if (H5Lexists(f.id, part.c_str(), H5P_DEFAULT) <= 0) {
      H5Eclear2(H5E_DEFAULT);
      return false;
    }
  }
  return true;
}

Id open_group(const File& f, const std::string& path) {
  Id g = open_object(f, path);
  if (H5Iget_type(g) != H5I_GROUP) f.fail("group " + path, "is not a group");
  return g;
}

std::vector<std::string> members(const File& f, const std::string& group) {
  const Id g = open_group(f, group);
  std::vector<std::string> names, datasets;
  if (H5Literate(g, H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names) < 0) f.fail("group " + group, "damaged, or far too many members" + last_error());
  for (const std::string& n : names) {
    const Id o(H5Oopen(g, n.c_str(), H5P_DEFAULT));
    if (!o) f.fail((group == "/" ? "/" : group + "/") + n, "cannot be opened" + last_error());
    if (H5Iget_type(o) == H5I_DATASET) datasets.push_back(n);
  }
  std::sort(datasets.begin(), datasets.end());
  return datasets;
}

Dataset open_dataset(const File& f, const std::string& path) {
  const std::string where = "dataset " + path;
  Dataset d;
  d.path = path;
  try {
    d.id = open_object(f, path);
  } catch (const BadInput& e) {                    // say "dataset" where the last link is meant
    std::string line = e.what();
    const std::string plain = f.name + ": " + path + ": ";
    if (line.rfind(plain, 0) == 0) line = f.name + ": " + where + ": " + line.substr(plain.size());
    throw BadInput(line);
  }
  if (H5Iget_type(d.id) != H5I_DATASET) f.fail(where, "is not a dataset");
  const Id creation(H5Dget_create_plist(d.id)), space(H5Dget_space(d.id));
  d.type = Id(H5Dget_type(d.id));
  if (!creation || !space || !d.type) f.fail(where, "damaged" + last_error());

  // The type, before anything is computed from its size.
  const auto tag = text_attribute(f, d.id, where, "dtype");
  std::optional<DType> found;
  if (H5Tequal(d.type, H5T_STD_U8LE) > 0 || H5Tequal(d.type, H5T_STD_U16LE) > 0) {
    const bool wide = H5Tget_size(d.type) == 2;
    if (!tag) f.fail(where, std::string(wide ? "uint16" : "uint8") + " without an attribute dtype (" + (wide ? "bf16 or fp16" : "fp8_e4m3 or fp8_e5m2") + ")");
    for (DType t : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2})
      if (*tag == gdn::name(t) && (size_of(t) == 2) == wide) found = t;
    if (!found) f.fail(where, std::string(wide ? "uint16" : "uint8") + " with attribute dtype '" + tag->substr(0, 40) + "', which does not fit");
  } else {
    for (DType t : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::e5m2, DType::i32, DType::i64})
      if (H5Tequal(d.type, make_type(t)) > 0) found = t;
    if (!found) {
      if (H5Tget_class(d.type) == H5T_OPAQUE) f.fail(where, "opaque type; write bf16 as float32, or as uint16 with attribute dtype=bf16");
      f.fail(where, "type is none of float64, float32, float16, bf16, float8, int32, int64 in little-endian order");
    }
    if (tag && *tag != gdn::name(*found)) f.fail(where, "attribute dtype says '" + tag->substr(0, 40) + "' but the stored type is " + gdn::name(*found));
  }
  d.dtype = *found;

  // Shape, against what a file of this size can hold.
  const int rank = H5Sget_simple_extent_ndims(space);
  const H5S_class_t extent = H5Sget_simple_extent_type(space);
  if (rank < 0 || rank > 8 || (extent != H5S_SIMPLE && extent != H5S_SCALAR)) f.fail(where, "has no usable shape");
  std::vector<hsize_t> dims(static_cast<std::size_t>(rank));
  if (rank) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  std::uint64_t bytes = size_of(d.dtype);
  for (hsize_t n : dims) {
    if (n != 0 && bytes > kMaxElements / n) f.fail(where, "declares more than 2^40 bytes");
    bytes *= n;
  }
  d.shape.assign(dims.begin(), dims.end());

  const H5D_layout_t layout = H5Pget_layout(creation);
  if (layout != H5D_CONTIGUOUS && layout != H5D_CHUNKED && layout != H5D_COMPACT) f.fail(where, "virtual or unknown storage; only data of this file is read");
  if (H5Pget_external_count(creation) != 0) f.fail(where, "external storage; only data of this file is read");
  std::uint64_t holds = f.bytes;
  const int filters = H5Pget_nfilters(creation);
  for (int i = 0; i < filters; ++i) {
    unsigned flags = 0, config = 0;
    std::size_t values = 0;
    const H5Z_filter_t id = H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &config);
    if (id == H5Z_FILTER_DEFLATE) holds *= kDeflateRatio;
    else if (id != H5Z_FILTER_SHUFFLE && id != H5Z_FILTER_FLETCHER32) f.fail(where, "uses a filter other than shuffle, deflate and fletcher32");
  }
  if (filters > 3) f.fail(where, "uses more filters than shuffle, deflate and fletcher32");
  if (bytes > holds) f.fail(where, "declares shape " + shape_text(d.shape) + ", more than a file of " + std::to_string(f.bytes) + " bytes can hold");
  if (bytes > 0 && H5Dget_storage_size(d.id) == 0) f.fail(where, "holds no data");
  if (layout == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(static_cast<std::size_t>(rank));
    if (H5Pget_chunk(creation, rank, chunk.data()) != rank) f.fail(where, "damaged chunk sizes" + last_error());
    std::uint64_t chunk_bytes = size_of(d.dtype);
    const std::uint64_t limit = std::max<std::uint64_t>(bytes, 64 << 20);
    for (hsize_t n : chunk) {
      if (n == 0 || chunk_bytes > limit / n) f.fail(where, "chunks are larger than the dataset");
      chunk_bytes *= n;
    }
  }
  return d;
}

void read(const File& f, const Dataset& d, void* data, const std::vector<hsize_t>& first, const std::vector<hsize_t>& count) {
  const Selection s = count.empty() ? Selection{} : select(d.id, first, count);   // outlives last_error
  if (H5Dread(d.id, d.type, s.memory ? s.memory.get() : H5S_ALL, s.file ? s.file.get() : H5S_ALL, H5P_DEFAULT, data) < 0)
    f.fail("dataset " + d.path, "cannot be read" + last_error());
}

Tensor read_tensor(const File& f, const Dataset& d) {
  try {
    Tensor t(d.dtype, d.shape);
    if (!t.data.empty()) read(f, d, t.data.data());
    return t;
  } catch (const std::bad_alloc&) {
    f.fail("dataset " + d.path, "shape " + shape_text(d.shape) + " does not fit into memory");
  }
}

}  // namespace gdn::h5
