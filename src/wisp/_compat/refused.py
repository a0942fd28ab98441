"""Inner parts of PyTorch's compiler, of its exporters and of training over many machines. Libraries import them at their top and call
them only where those parts run: here they can be imported, inherited from and compared with, and refuse when they are called."""

from wisp._compat.answers import Answer, Refusal

_DECORATOR = Answer("The decorator itself: what is decorated stays as it is.", None, "*args, **kwargs", "lambda f: f")

_REASONS = {
    "_": "Wisp has no compiler or exporter whose parts could be called",
    "ao": "Wisp quantizes models layer by layer (prepare, prepare_qat, convert), not by graphs",
    "cuda": "Wisp has no notes in the graphs of CUDA",
    "distributed": "Wisp has no such part: use DistributedDataParallel, fully_shard or the collectives of torch.distributed",
    "export": "Wisp has no exporter whose parts could be called",
    "fx": "Wisp has no compiler or exporter whose parts could be called",
    "nn": "Wisp has no such kernel: use scaled_dot_product_attention",
    "onnx": "torch.onnx.export writes the operators; there are no rules to call",
    "sparse": "Wisp has no kernels of Triton",
    "testing": "it is a part of PyTorch's own test harness",
}
# module: its names, classes with a capital
_NAMES = """
    _decomp: core_aten_decompositions get_decompositions register_decomposition
    _dynamo.compiled_autograd: _enable
    _dynamo.functional_export: dynamo_graph_capture_for_export _dynamo_graph_capture_for_export
    _dynamo.graph_deduplication: _stable_topological_sort
    _dynamo.source: AttrSource ConstantSource LocalSource GetItemSource
    _export.error: InternalError
    _export.utils: _disable_aten_to_metadata_assertions _is_cia_op
    _export:
    _functorch._activation_offloading: offload_ops
    _functorch._aot_autograd:
    _functorch._aot_autograd.functional_utils: from_fun to_fun
    _functorch._aot_autograd.fx_utils: get_plain_input_and_grad_nodes
    _functorch._aot_autograd.runtime_wrappers: AOTDispatchAutograd
    _functorch._aot_autograd.schemas: SubclassCreationMeta
    _functorch.aot_autograd: JointWithDescriptors aot_compile_joint_with_descriptors aot_export_joint_with_descriptors
        aot_export_module aot_function aot_module aot_module_simplified make_boxed_compiler make_boxed_func
    _functorch.compile_utils: raise_getitems fx_graph_cse
    _functorch.compilers: aot_module
    _functorch.partitioners: _extract_fwd_bwd_outputs _extract_graph_with_inputs_outputs get_default_op_list has_recomputable_ops
        has_recomputable_rng_ops is_sym_node must_recompute default_partition min_cut_rematerialization_partition
    _higher_order_ops.flex_attention: flex_attention flex_attention_backward
    _higher_order_ops.inline_asm_elementwise: inline_asm_elementwise
    _higher_order_ops.wrap: wrap_with_set_grad_enabled tag_activation_checkpoint
    _inductor.codegen:
    _inductor.codegen.cpp_flex_attention_template: CppFlexAttentionTemplate
    _inductor.codegen.cpp_template: CppTemplate
    _inductor.codegen.cpp_template_kernel: parse_expr_with_index_symbols wrap_with_tensorbox
    _inductor.codegen.triton: TritonOverrides
    _inductor.compile_fx: compile_fx compile_fx_inner
    _inductor.constant_folding: constant_fold
    _inductor.cpp_builder: get_cpp_compiler
    _inductor.cpu_vec_isa: pick_vec_isa
    _inductor.cudagraph_trees: _use_cuda_memory_pool_manager
    _inductor.custom_graph_pass: CustomGraphPass get_hash_for_files
    _inductor.decomposition: register_decomposition
    _inductor.freezing_utils: maybe_set_is_frozen_param
    _inductor.fx_passes:
    _inductor.fx_passes.bucketing: BucketMode is_all_gather_into_tensor is_wait_tensor
    _inductor.fx_passes.control_dependencies: preserve_node_ordering
    _inductor.fx_passes.freezing_patterns: freezing_passes register_freezing_graph_pattern
    _inductor.fx_passes.micro_pipeline_tp: micro_pipeline_tp_pass
    _inductor.fx_passes.mkldnn_fusion: _gelu_fusion_1 _gelu_fusion_2 _get_remaining_users _hardswish_fusion _hardtanh_fusion
        _silu_fusion
    _inductor.fx_passes.overlap_manual_scheduling: ManualOverlapPreservingBucketer ManualOverlapScheduler _move_overlap_nodes
        manual_overlap_bucketing
    _inductor.fx_passes.overlap_scheduling: get_group_name is_compute_node schedule_overlap_bucketing
        schedule_overlap_bucketing_from_inductor_configs
    _inductor.fx_passes.post_grad: decompose_auto_functionalized
    _inductor.ir: Buffer ChoiceCaller CppTemplateBuffer FixedLayout IRNode Layout Pointwise TensorBox get_fill_order
    _inductor.kernel:
    _inductor.kernel.flex:
    _inductor.kernel.flex.common: construct_strides maybe_realize
    _inductor.lowering: expand register_lowering to_dtype
    _inductor.metrics: reset
    _inductor.output_code: RegionalOutputCode CompiledFxGraph
    _inductor.pattern_matcher: Arg CallFunction KeywordArg Match PatternMatcherPass filter_nodes register_lowering_pattern
        register_replacement fwd_only
    _inductor.runtime:
    _inductor.runtime.cache_dir_utils: cache_dir
    _inductor.select_algorithm: DataProcessorTemplateWrapper ExternKernelChoice autotune_select_algorithm
    _inductor.virtualized: V
    _library:
    _library.opaque_object: is_opaque_value register_opaque_type
    _library.utils: get_source mutates_and_returns_first_arg
    _library.custom_ops: custom_op
    _prims_common.wrappers: _maybe_convert_to_dtype out_wrapper
    _subclasses.meta_utils: MetaConverter
    ao.ns:
    ao.ns.fx:
    ao.ns.fx.utils: compute_sqnr
    ao.pruning: BaseSparsifier WeightNormSparsifier get_arg_info_from_tensor_fqn
    ao.quantization.backend_config: BackendConfig BackendPatternConfig DTypeConfig ObservationType get_executorch_backend_config
        get_native_backend_config
    ao.quantization.backend_config.utils: get_fused_module_classes get_pattern_to_dtype_configs get_qat_module_classes
        get_root_module_to_quantized_reference_module
    ao.quantization.fx:
    ao.quantization.fx._decomposed: _per_token_quant_qparam_dim_check quantize_per_channel_group quantized_decomposed_lib
    ao.quantization.fx._equalize: convert_eq_obs update_obs_for_equalization
    ao.quantization.fx.custom_config: ConvertCustomConfig PrepareCustomConfig
    ao.quantization.fx.graph_module: _is_observed_module _is_observed_standalone_module
    ao.quantization.fx.lower_to_fbgemm: lower_to_fbgemm
    ao.quantization.fx.prepare: _insert_obs_or_fq _save_state
    ao.quantization.fx.qconfig_mapping_utils: _compare_prepare_convert_qconfig_mappings _generate_node_name_to_qconfig
        _is_qconfig_supported_by_dtype_configs _update_qconfig_for_fusion _update_qconfig_for_qat
    ao.quantization.fx.utils: _get_module graph_module_from_producer_nodes node_arg_is_weight
    ao.quantization.qconfig_mapping: QConfigMapping get_default_qconfig_mapping get_default_qat_qconfig_mapping
    ao.quantization.quantize_fx: _convert_to_reference_decomposed_fx convert_fx convert_to_reference_fx prepare_fx prepare_qat_fx
        fuse_fx
    ao.quantization.quantizer: Quantizer QuantizationAnnotation QuantizationSpec
    ao.quantization.utils: MatchAllNode _parent_name get_qparam_dict is_per_channel to_underlying_dtype weight_is_quantized
    cuda._annotate_cuda_graph_trace: annotate_trace
    cuda._graph_annotations: _is_tools_id_unavailable get_kernel_annotations mark_kernels
    distributed._local_tensor: LocalTensorMode
    distributed._mesh_layout: _MeshLayout
    distributed._symmetric_memory: is_symm_mem_enabled_for_group _test_mode empty enable_symm_mem_for_group get_backend
        get_symm_mem_workspace rendezvous
        set_backend
    distributed.tensor._dispatch: OpDispatcher
    distributed.tensor._ops: register_op_strategy
    distributed.checkpoint._consolidate_hf_safetensors: consolidate_safetensors_files consolidate_safetensors_files_on_every_rank
    distributed.checkpoint.quantized_hf_storage: QuantizedHuggingFaceStorageReader
    distributed.checkpoint.staging: AsyncStager BlockingAsyncStager DefaultStager StagingOptions
    distributed.fsdp._traversal_utils: _get_fsdp_states
    distributed.pipelining.microbatch: _split_block_mask TensorChunkSpec
    distributed.pipelining.schedules: PipelineScheduleMulti PipelineScheduleSingle ScheduleDualPipeV ScheduleZBVZeroBubble _Action
        _PipelineContext _PipelineSchedule _PipelineScheduleRuntime _wait_batch_p2p get_schedule_class Schedule1F1B ScheduleGPipe
        ScheduleInterleaved1F1B
    distributed.pipelining.stage: PipelineStage _normalize_model_output_as_tuple
    distributed.tensor._dtensor_spec: DTensorSpec TensorMeta
    distributed.tensor._random: manual_seed is_rng_supported_mesh
    distributed.tensor._redistribute: _gen_transform_infos redistribute_local_tensor
    distributed.tensor.experimental._attention: _HeadTailLoadBalancer _PTRRLoadBalancer _context_parallel_shard
        _enable_context_parallel_dispatcher set_rotate_method context_parallel_unshard
    distributed.tensor.experimental._context_parallel:
    distributed.tensor.experimental._context_parallel._attention: flex_cp_allgather
    distributed.tensor.parallel: ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleInputOutput PrepareModuleOutput
        RowwiseParallel SequenceParallel loss_parallel parallelize_module
    distributed.tensor.parallel.style: ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleOutput RowwiseParallel
        SequenceParallel
    export._trace: _export
    export.decomp_utils: CustomDecompTable
    fx._graph_pickler: GraphPickler Options
    fx.passes.regional_inductor: regional_inductor
    fx.passes.runtime_assert: insert_deferred_runtime_asserts
    nn.attention.varlen: AuxRequest varlen_attn varlen_attn_out
    nn.attention.experimental:
    nn.attention.experimental._scaled_dot_product_attention_quantized: _scaled_dot_product_attention_quantized
    onnx.symbolic_opset12: dropout
    onnx.symbolic_opset9: masked_fill softmax sub
    sparse._triton_ops: broadcast_batch_dims launch_kernel prepare_inputs ptr_stride_extractor tile_to_blocksize
    sparse._triton_ops_meta: get_meta minimize update
    testing._internal.common_distributed: MultiProcessTestCase skip_if_lt_x_gpu
    testing._internal.common_fsdp: FSDPTest
    testing._internal.common_quantization: NodeSpec QuantizationTestCase TestHelperModules
    testing._internal.optests: opcheck
"""


def _reason(module):
    start = module.partition(".")[0]
    return _REASONS["_" if start.startswith("_") else start]


REFUSED = {}
for _word in _NAMES.split():
    if _word.endswith(":"):
        _reason_now = _reason(_word)
        REFUSED[_word[:-1]] = (f"Not there: {_reason_now}.", _names := {})
    elif _word.startswith("register_"):
        _names[_word] = _DECORATOR
    else:
        _names[_word] = Refusal(_reason_now, is_class=_word.lstrip("_")[:1].isupper())
