// The recurrence as an adapter in C++ without Python: what the protocol asks of a program in any language, in one
// file. Needs HDF5 and a JSON parser; uses no code of the suite.
//   gdn-cts verify --exec 'build/tools/adapters/gdn-cts-cpp-recurrence'
#include <hdf5.h>

#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using nlohmann::json;

namespace {

struct Array {
  std::vector<hsize_t> shape;
  std::vector<float> values;
};

// HDF5 widens the file's bf16, fp16 or fp32 to float exactly.
std::optional<Array> read(hid_t file, const char* name) {
  if (H5Lexists(file, name, H5P_DEFAULT) <= 0) return std::nullopt;
  Array a;
  const hid_t data = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(data);
  a.shape.resize(static_cast<std::size_t>(H5Sget_simple_extent_ndims(space)));
  H5Sget_simple_extent_dims(space, a.shape.data(), nullptr);
  a.values.resize(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)));
  const herr_t status = a.values.empty() ? 0 : H5Dread(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, a.values.data());
  H5Sclose(space);
  H5Dclose(data);
  if (status < 0) throw std::runtime_error(std::string("cannot read ") + name);
  return a;
}

void write(hid_t file, const char* name, const Array& a) {
  const hid_t space = H5Screate_simple(static_cast<int>(a.shape.size()), a.shape.data(), nullptr);
  const hid_t data = H5Dcreate2(file, name, H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  const herr_t status = a.values.empty() ? 0 : H5Dwrite(data, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, a.values.data());
  H5Dclose(data);
  H5Sclose(space);
  if (status < 0) throw std::runtime_error(std::string("cannot write ") + name);
}

float round_to_bf16(float x) {
  std::uint32_t b = std::bit_cast<std::uint32_t>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return x;   // NaN
  b = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;
  return std::bit_cast<float>(b);
}

json answer(const json& request) {
  const auto problem = request.at("problem").get<std::string>();
  const bool bf16 = problem.find("/bf16") != std::string::npos, fp32 = problem.find("/fp32") != std::string::npos;
  if (!bf16 && !fp32) return {{"status", "not_supported"}, {"message", "io other than bf16 and fp32"}};
  if (request.at("rule") != "gated_delta") return {{"status", "not_supported"}, {"message", "rule " + request.at("rule").get<std::string>()}};
  const auto N = request.at("N").get<std::size_t>(), H = request.at("H").get<std::size_t>(), HV = request.at("HV").get<std::size_t>(),
             K = request.at("K").get<std::size_t>(), V = request.at("V").get<std::size_t>();
  const auto scale = static_cast<float>(request.at("scale").get<double>());

  const hid_t in = H5Fopen(request.at("inputs").get<std::string>().c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  if (in < 0) throw std::runtime_error("cannot open the inputs");
  const Array q = read(in, "q").value(), k = read(in, "k").value(), v = read(in, "v").value(), g = read(in, "g").value(),
              beta = read(in, "beta").value(), offsets = read(in, "cu_seqlens").value();   // below 2^24 tokens
  const std::optional<Array> h0 = read(in, "h0");
  H5Fclose(in);

  const auto begin = std::chrono::steady_clock::now();
  Array o{v.shape, std::vector<float>(v.values.size())}, ht{{N, HV, K, V}, std::vector<float>(N * HV * K * V)};
  if (h0) ht.values = h0->values;
  std::vector<float> read_back(V);
  for (std::size_t n = 0; n < N; ++n)
    for (std::size_t hv = 0; hv < HV; ++hv) {
      float* s = &ht.values[(n * HV + hv) * K * V];
      for (auto t = static_cast<std::size_t>(offsets.values[n]); t < static_cast<std::size_t>(offsets.values[n + 1]); ++t) {
        const float* key = &k.values[(t * H + hv / (HV / H)) * K];
        const float* query = &q.values[(t * H + hv / (HV / H)) * K];
        const float* value = &v.values[(t * HV + hv) * V];
        float* out = &o.values[(t * HV + hv) * V];
        const float alpha = std::exp(g.values[t * HV + hv]), b = beta.values[t * HV + hv];
        std::fill(read_back.begin(), read_back.end(), 0.0f);
        for (std::size_t i = 0; i < K; ++i)
          for (std::size_t j = 0; j < V; ++j) read_back[j] += (s[i * V + j] *= alpha) * key[i];
        for (std::size_t i = 0; i < K; ++i)
          for (std::size_t j = 0; j < V; ++j) {
            s[i * V + j] += key[i] * (b * (value[j] - read_back[j]));
            out[j] += s[i * V + j] * query[i];
          }
        for (std::size_t j = 0; j < V; ++j) out[j] = bf16 ? round_to_bf16(scale * out[j]) : scale * out[j];
      }
    }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const hid_t file = H5Fcreate(request.at("outputs").get<std::string>().c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  if (file < 0) throw std::runtime_error("cannot create the outputs");
  write(file, "o", o);
  write(file, "ht", ht);
  H5Fclose(file);
  return {{"status", "ok"}, {"seconds", seconds}, {"module", "cpp_recurrence.cpp answer()"}};
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    const json request = json::parse(line);
    json reply;
    if (request.contains("hello")) {
      reply = {{"gdn_cts", 1}, {"name", "cpp_recurrence"}, {"version", "1"}, {"description", "gated delta rule, token by token, C++ float"},
               {"convention", ""}, {"contract", "fp32-recurrent"},
               {"capabilities", "ops=prefill;io=fp32,bf16;state=fp32;gate=fp32,bf16;beta=fp32,bf16;varlen;h0;ht;empty;g_min=-inf;beta_max=2"},
               {"properties", "deterministic;shape_invariant;symmetric;masks_select"},
               {"packages", {{"hdf5", H5_VERS_INFO}}}, {"module", "cpp_recurrence.cpp answer()"}};
    } else {
      try {
        reply = answer(request);
      } catch (const std::exception& e) {
        reply = {{"status", "error"}, {"message", e.what()}};
      }
      reply["id"] = request.at("id");
    }
    std::cout << reply.dump() << std::endl;
  }
}
