BEGIN TRANSACTION;
CREATE TABLE asset (
			sha256 TEXT PRIMARY KEY, size BIGINT NOT NULL, media_type TEXT NOT NULL, added_at BIGINT NOT NULL, used_at BIGINT NOT NULL,
			times BIGINT NOT NULL);
CREATE TABLE asset_caller (
			sha256 TEXT NOT NULL, caller TEXT NOT NULL, asset_id TEXT NOT NULL, media_type TEXT NOT NULL, at BIGINT NOT NULL,
			PRIMARY KEY (sha256, caller));
CREATE TABLE audit (
			seq INTEGER PRIMARY KEY, at BIGINT NOT NULL, kind BIGINT NOT NULL, took BIGINT NOT NULL, bytes_in BIGINT NOT NULL,
			bytes_out BIGINT NOT NULL, session TEXT NOT NULL, detail TEXT NOT NULL, hash BLOB NOT NULL);
INSERT INTO "audit" VALUES(9,1794358923000004,5,605998,12,34,'s1','{"call":"01a1e0f0-8be5-7402-ae9a-be63ef89b66f","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'182388DC8583215E58FE46D44B60C279D76C0B7BC13D3F512AB5EBA6CA8B8E5D');
INSERT INTO "audit" VALUES(10,1794369723000004,2,585599,12,34,'s1','{"call":"01a1e0f0-8be5-7252-afbb-9c5b92318e3b","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'E06AAFAC15459DECCBFEFEB922A8F85305EBB619F88A193331F6DB39DFBC128E');
INSERT INTO "audit" VALUES(11,1794380523000004,6,672343,12,34,'','{"call":"01a1e0f0-8be5-73bf-bea4-b826e9266492","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'509AEB045CC98F760B1DEAF41C51FAE3304630FC1DA6CBA52A431107DFBC7E80');
INSERT INTO "audit" VALUES(12,1794391323000004,2,833250,12,34,'','{"call":"01a1e0f0-8be5-7386-9539-04c3813fe53f","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'C33F8152FBAE9550CE8400B9A1B5651D93B88846B5E1E1290522B46E0D462795');
INSERT INTO "audit" VALUES(13,1794402123000004,2,861179,12,34,'','{"call":"01a1e0f0-8be5-732e-bf7d-efb5be804243","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'279BBAF3FBC5F5CB708E8FE637E912BD6CA798C1AD5EEA9C9610BCAB7D432B3A');
INSERT INTO "audit" VALUES(14,1794412923000004,2,794760,12,34,'','{"call":"01a1e0f0-8be5-7ea5-8429-00dc74895df2","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'924D35F211AC8F398A952A62BD389ABE397DEB9D50253E615DC425067C886C6E');
INSERT INTO "audit" VALUES(15,1794423723000004,6,710917,12,34,'','{"call":"01a1e0f0-8be6-7401-ba96-463014978d4a","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'A2EE5BA7629474C4A4EBAABD18B781DD049CB83A3A1D68B76ACF96D6F7B34B1B');
INSERT INTO "audit" VALUES(16,1794434523000004,4,656644,12,34,'s1','{"call":"01a1e0f0-8be6-766c-872f-15dd8dd772b7","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'5477323FB035B87794F590DFD745316B535895F3D060AA39DF91973C1DC1DE72');
INSERT INTO "audit" VALUES(17,1794445323000004,7,666738,12,34,'','{"call":"01a1e0f0-8be6-71af-be8f-9708e94cf2ef","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'D37D786AC22CC7FC850C8D760E4B2E660A0AD867CFA8EF46F69610B02730EF14');
INSERT INTO "audit" VALUES(18,1794456123000004,4,911451,12,34,'s1','{"call":"01a1e0f0-8be6-7599-b26a-e5bd5a0bd41e","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'81F8537BD245BC637FC3A1FCE53515109C113E568D5BD175BFAD7B451106C662');
INSERT INTO "audit" VALUES(19,1794466923000004,6,364674,12,34,'s1','{"call":"01a1e0f0-8be6-7bc4-adda-d4888c79ddab","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'6B0031B6889879CB05498CF572256466D6A18384E8E6D8795B5F8ADAB8290D51');
INSERT INTO "audit" VALUES(20,1794477723000004,3,399861,12,34,'s1','{"call":"01a1e0f0-8be7-77e9-a1e6-09bdec30dd66","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'A3F7FDDC3BD6B3903F5071CC470F495EAB14067FAA8C0A4718970519AAF6AAF0');
INSERT INTO "audit" VALUES(21,1794488523000004,8,579182,12,34,'s1','{"call":"01a1e0f0-8be7-7f14-9a5f-2f485971970a","trace":"t1","asked":"file.read","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"args":{"path":"it''s \\ \"a\"\n"},"reads":["/a","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c","/c"],"omitted":12,"lease":"l1","key":"k1","replay":true,"cached":true,"dry_run":true,"reason":"ValueError","lost":5}',X'0B14F4E3D9921C571E1F93152810F77054EF61C5862033A23FAD7602BD40DFC7');
INSERT INTO "audit" VALUES(22,1794499323000004,2,518281,12,34,'','{"call":"01a1e0f0-8be7-7429-9b13-30d166e483c4","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/a"]}',X'E7CBF37C8BF1C7AE94E8BBA58F373D88DA1E79E333371C2FE776669F03E24C79');
INSERT INTO "audit" VALUES(23,1794510123000004,5,680546,12,34,'s1','{"call":"01a1e0f0-8be7-7280-932e-5fb8dd7c84c4","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'6C25D306C77EBC0C9F12C949197BBAF0C821C3F5F336B08928AEF8A5E5EE3810');
INSERT INTO "audit" VALUES(24,1794520923000004,9,879417,12,34,'s1','{"call":"01a1e0f0-8be7-78ad-be11-e64709c16c8d","trace":"t1","run":"r1","tier":1,"sha256":"abababababababababababababababababababababababababababababababab","shape":{"path":"string"},"reads":["/b"]}',X'517891D649BBFE6DCE01F63035AED77FC0B8343AA1BF79952C60D2CA54DEB7A1');
CREATE TABLE audit_day (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, n BIGINT NOT NULL, took BIGINT NOT NULL, longest BIGINT NOT NULL,
			bytes_in BIGINT NOT NULL, bytes_out BIGINT NOT NULL, first_seq BIGINT NOT NULL, last_seq BIGINT NOT NULL,
			PRIMARY KEY (day, kind));
INSERT INTO "audit_day" VALUES(20768,5,1,605998,605998,12,34,9,9);
INSERT INTO "audit_day" VALUES(20768,2,4,3074788,861179,48,136,10,14);
INSERT INTO "audit_day" VALUES(20768,6,2,1383260,710917,24,68,11,15);
INSERT INTO "audit_day" VALUES(20768,4,1,656644,656644,12,34,16,16);
INSERT INTO "audit_day" VALUES(20769,7,1,666738,666738,12,34,17,17);
INSERT INTO "audit_day" VALUES(20769,4,1,911451,911451,12,34,18,18);
INSERT INTO "audit_day" VALUES(20769,6,1,364674,364674,12,34,19,19);
INSERT INTO "audit_day" VALUES(20769,3,1,399861,399861,12,34,20,20);
INSERT INTO "audit_day" VALUES(20769,8,1,579182,579182,12,34,21,21);
INSERT INTO "audit_day" VALUES(20769,2,1,518281,518281,12,34,22,22);
INSERT INTO "audit_day" VALUES(20769,5,1,680546,680546,12,34,23,23);
INSERT INTO "audit_day" VALUES(20769,9,1,879417,879417,12,34,24,24);
CREATE TABLE audit_head (
			id INTEGER PRIMARY KEY, seq BIGINT NOT NULL, hash BLOB NOT NULL, cut_seq BIGINT NOT NULL, cut_hash BLOB NOT NULL,
			epoch BIGINT NOT NULL, mac BLOB NOT NULL);
INSERT INTO "audit_head" VALUES(1,24,X'517891D649BBFE6DCE01F63035AED77FC0B8343AA1BF79952C60D2CA54DEB7A1',8,X'2D9BF516A8C0DEE19106B6A62F0D273A5959944F170AC5E95F793793252B7E65',1,X'13D66F04D1D5688719C9549EC197F2B00A4E332952B7C1315DAE7C323632598E');
CREATE TABLE audit_kind (
			id INTEGER PRIMARY KEY, tool TEXT NOT NULL, source TEXT NOT NULL, protocol TEXT NOT NULL, door TEXT NOT NULL,
			caller TEXT NOT NULL, decision TEXT NOT NULL, rule TEXT NOT NULL, enforcement TEXT NOT NULL,
			outcome TEXT NOT NULL, code TEXT NOT NULL);
INSERT INTO "audit_kind" VALUES(2,'readFile','files','builtin','cli','bob','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(3,'writeFile','files','builtin','http','bob','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(4,'writeFile','files','builtin','cli','bob','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(5,'readFile','files','builtin','http','ada','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(6,'writeFile','files','builtin','cli','ada','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(7,'readFile','files','builtin','http','bob','allow','default','no_network','ok','');
INSERT INTO "audit_kind" VALUES(8,'readFile','files','builtin','http','bob','allow','default','no_network','failed','tool_error');
INSERT INTO "audit_kind" VALUES(9,'writeFile','files','builtin','http','ada','allow','default','no_network','ok','');
CREATE TABLE audit_open (id TEXT PRIMARY KEY, owner TEXT NOT NULL, at BIGINT NOT NULL, record TEXT NOT NULL);
INSERT INTO "audit_open" VALUES('3e8aa959345318bb361d0839e028aa8f2fa77876f1477d9b0d02bcde2509c0a0','572056282700049708',1794618123000004,'{"time":"2026-11-14T01:02:03.000004Z","call":"open","tool":"writeFile","door":"cli","caller":"ada","digest":"ab","touches":{"writes":["/w"]},"dry_run":true,"outcome":"","bytes_in":0,"bytes_out":0,"duration_ms":2}');
CREATE TABLE audit_path (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, mode TEXT NOT NULL, path TEXT NOT NULL, n BIGINT NOT NULL,
			PRIMARY KEY (day, kind, mode, path));
INSERT INTO "audit_path" VALUES(20768,5,'read','/b',1);
INSERT INTO "audit_path" VALUES(20768,2,'read','/a',1);
INSERT INTO "audit_path" VALUES(20768,6,'read','/a',2);
INSERT INTO "audit_path" VALUES(20768,2,'read','/b',3);
INSERT INTO "audit_path" VALUES(20768,4,'read','/b',1);
INSERT INTO "audit_path" VALUES(20769,7,'read','/b',1);
INSERT INTO "audit_path" VALUES(20769,4,'read','/b',1);
INSERT INTO "audit_path" VALUES(20769,6,'read','/a',1);
INSERT INTO "audit_path" VALUES(20769,3,'read','/a',1);
INSERT INTO "audit_path" VALUES(20769,8,'read','/a',1);
INSERT INTO "audit_path" VALUES(20769,8,'read','/c',31);
INSERT INTO "audit_path" VALUES(20769,2,'read','/a',1);
INSERT INTO "audit_path" VALUES(20769,5,'read','/b',1);
INSERT INTO "audit_path" VALUES(20769,9,'read','/b',1);
CREATE TABLE audit_took (
			day BIGINT NOT NULL, kind BIGINT NOT NULL, bucket BIGINT NOT NULL, n BIGINT NOT NULL, PRIMARY KEY (day, kind, bucket));
INSERT INTO "audit_took" VALUES(20768,5,72,1);
INSERT INTO "audit_took" VALUES(20768,2,72,1);
INSERT INTO "audit_took" VALUES(20768,6,73,2);
INSERT INTO "audit_took" VALUES(20768,2,74,3);
INSERT INTO "audit_took" VALUES(20768,4,73,1);
INSERT INTO "audit_took" VALUES(20769,7,73,1);
INSERT INTO "audit_took" VALUES(20769,4,74,1);
INSERT INTO "audit_took" VALUES(20769,6,69,1);
INSERT INTO "audit_took" VALUES(20769,3,70,1);
INSERT INTO "audit_took" VALUES(20769,8,72,1);
INSERT INTO "audit_took" VALUES(20769,2,71,1);
INSERT INTO "audit_took" VALUES(20769,5,73,1);
INSERT INTO "audit_took" VALUES(20769,9,74,1);
CREATE TABLE job (
			id TEXT PRIMARY KEY, caller TEXT NOT NULL, tool TEXT NOT NULL, state TEXT NOT NULL, owner TEXT NOT NULL,
			made_at BIGINT NOT NULL, began_at BIGINT, seen_at BIGINT, ended_at BIGINT, attempts BIGINT NOT NULL, again BIGINT NOT NULL,
			stop BIGINT NOT NULL, lease TEXT NOT NULL, call TEXT NOT NULL, result TEXT);
CREATE TABLE job_event (job TEXT NOT NULL, seq BIGINT NOT NULL, event TEXT NOT NULL, PRIMARY KEY (job, seq));
CREATE TABLE lease (
			id TEXT PRIMARY KEY, tool TEXT NOT NULL, tier BIGINT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT NOT NULL,
			used_at BIGINT, revoked_at BIGINT, caller TEXT NOT NULL DEFAULT '');
CREATE TABLE outcome (
			scope BLOB PRIMARY KEY, input BLOB NOT NULL, owner TEXT NOT NULL, at BIGINT NOT NULL, expires_at BIGINT NOT NULL, result TEXT, lost_at BIGINT);
CREATE TABLE program (id INTEGER PRIMARY KEY, mark TEXT NOT NULL, at BIGINT NOT NULL);
CREATE TABLE session (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, base_version BIGINT NOT NULL, base_size BIGINT NOT NULL,
			tail BIGINT NOT NULL, changed_at BIGINT NOT NULL, PRIMARY KEY (caller, name));
INSERT INTO "session" VALUES('ada','s',2,0,2,32,1794775223285074);
CREATE TABLE session_base (caller TEXT NOT NULL, name TEXT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (caller, name));
CREATE TABLE session_mark (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (caller, name));
CREATE TABLE session_patch (
			caller TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, at BIGINT NOT NULL, patches TEXT NOT NULL,
			PRIMARY KEY (caller, name, version));
INSERT INTO "session_patch" VALUES('ada','s',1,1794775223281707,'[{"a":{"b":1}}]');
INSERT INTO "session_patch" VALUES('ada','s',2,1794775223285051,'[{"a":{"c":"x"}}]');
CREATE TABLE token (
			id TEXT PRIMARY KEY, caller TEXT NOT NULL, roles TEXT NOT NULL, tools TEXT NOT NULL, listed BIGINT NOT NULL,
			note TEXT NOT NULL, issued_at BIGINT NOT NULL, expires_at BIGINT, revoked_at BIGINT);
CREATE TABLE toolpost_schema (version BIGINT NOT NULL);
INSERT INTO "toolpost_schema" VALUES(1);
INSERT INTO "toolpost_schema" VALUES(2);
INSERT INTO "toolpost_schema" VALUES(3);
INSERT INTO "toolpost_schema" VALUES(4);
INSERT INTO "toolpost_schema" VALUES(5);
CREATE INDEX audit_kind_tool ON audit_kind (tool, caller);
CREATE INDEX audit_session ON audit (session, seq) WHERE session <> '';
CREATE VIEW calls AS SELECT a.seq, a.at, k.tool, k.source, k.protocol, k.door, k.caller, a.session, k.decision, k.rule,
			k.enforcement, k.outcome, k.code, a.took, a.bytes_in, a.bytes_out, a.detail
			FROM audit a JOIN audit_kind k ON k.id = a.kind;
CREATE INDEX lease_end ON lease (expires_at);
CREATE INDEX outcome_end ON outcome (expires_at);
CREATE INDEX token_caller ON token (caller);
CREATE INDEX job_state ON job (state, made_at, caller);
CREATE INDEX job_caller ON job (caller, made_at);
CREATE INDEX job_end ON job (ended_at);
COMMIT;
