// Catch2 v2 and v3 under one include; the rest of the tests include this only.
#pragma once
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;                              // where version 2 puts it
#else
#include <catch2/catch.hpp>
#endif
