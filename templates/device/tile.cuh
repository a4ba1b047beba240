//@ primitive load_aligned needs Vector load_vector
/// N elements from p, whose address is a multiple of the vector's alignment.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_aligned(const T* p) {
  return load_vector<alignof(Vector<T, N>), N>(p);
}
//@ end

//@ primitive load_single needs Vector load_vector
/// N elements from p, one at a time.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_single(const T* p) {
  return load_vector<alignof(T), N>(p);
}
//@ end

//@ primitive load_aligned_partial needs Vector load_vector_partial
/// The first `count` of N elements from p, zeros behind them.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_aligned_partial(const T* p, int count) {
  return load_vector_partial<alignof(Vector<T, N>), N>(p, count);
}
//@ end

//@ primitive load_single_partial needs Vector load_vector_partial
/// The first `count` of N elements from p, one at a time, zeros behind them.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_single_partial(const T* p, int count) {
  return load_vector_partial<alignof(T), N>(p, count);
}
//@ end

//@ primitive store_aligned needs Vector store_vector
/// All elements of v to p, whose address is a multiple of the vector's alignment.
template <class T, int N>
__device__ __forceinline__ void store_aligned(T* p, const Vector<T, N>& v) {
  store_vector<alignof(Vector<T, N>)>(p, v);
}
//@ end

//@ primitive store_single needs Vector store_vector
/// All elements of v to p, one at a time.
template <class T, int N>
__device__ __forceinline__ void store_single(T* p, const Vector<T, N>& v) {
  store_vector<alignof(T)>(p, v);
}
//@ end

//@ primitive store_aligned_partial needs Vector store_vector_partial
/// The first `count` elements of v to p.
template <class T, int N>
__device__ __forceinline__ void store_aligned_partial(T* p, const Vector<T, N>& v, int count) {
  store_vector_partial<alignof(Vector<T, N>)>(p, v, count);
}
//@ end

//@ primitive store_single_partial needs Vector store_vector_partial
/// The first `count` elements of v to p, one at a time.
template <class T, int N>
__device__ __forceinline__ void store_single_partial(T* p, const Vector<T, N>& v, int count) {
  store_vector_partial<alignof(T)>(p, v, count);
}
//@ end

//@ primitive combine_partials
/// Op over kCount values that lie kStride apart, in order: the same bits in every thread.
template <class Op, int kCount, int kStride = 1, class T>
__device__ __forceinline__ T combine_partials(const T* partials) {
  T total = partials[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) total = Op::combine(total, partials[i * kStride]);
  return total;
}
//@ end
